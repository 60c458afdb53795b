// A web server on the loopback interface that serves fixed bodies and can misbehave on request.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace regard::test {

class HttpServer {
 public:
  struct Page {
    std::string body;
    size_t cut_after = SIZE_MAX;  // the connection breaks after so many bytes of the body
    int cuts = 0;                 // how often it does
    int status = 200;
    bool ranges = true;  // answers "Range: bytes=N-"
  };

  HttpServer() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (socket_ < 0 || ::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(socket_, 8) != 0 ||
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no loopback server");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }

  ~HttpServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }

  void put(const std::string& path, Page page) {
    const std::lock_guard lock(mutex_);
    pages_[path] = std::move(page);
  }

  // The first byte that each request so far asked for.
  std::vector<size_t> offsets() {
    const std::lock_guard lock(mutex_);
    return offsets_;
  }

 private:
  void serve() {
    for (;;) {
      const int client = ::accept(socket_, nullptr, nullptr);
      if (client < 0) return;
      std::string request;
      char block[4096];
      ssize_t count = 0;
      while (request.find("\r\n\r\n") == std::string::npos &&
             (count = ::recv(client, block, sizeof(block), 0)) > 0)
        request.append(block, static_cast<size_t>(count));
      const std::string answer = respond(request);
      size_t sent = 0;
      while (sent < answer.size()) {
        count = ::send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (count <= 0) break;
        sent += static_cast<size_t>(count);
      }
      ::close(client);
    }
  }

  std::string respond(const std::string& request) {
    const std::lock_guard lock(mutex_);
    const std::string path = request.substr(4, request.find(' ', 4) - 4);
    const auto found = pages_.find(path);
    if (found == pages_.end())
      return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    Page& page = found->second;
    size_t offset = 0;
    const size_t range = request.find("Range: bytes=");
    if (range != std::string::npos) offset = std::stoul(request.substr(range + 13));
    offsets_.push_back(offset);
    if (!page.ranges) offset = 0;
    std::string body = page.body.substr(std::min(offset, page.body.size()));
    std::string head = "HTTP/1.1 " +
                       (offset > 0 ? std::string("206 Partial") : std::to_string(page.status) + " Word") +
                       "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    if (offset > 0) {
      head += "Content-Range: bytes " + std::to_string(offset) + "-" + std::to_string(page.body.size() - 1) +
              "/" + std::to_string(page.body.size()) + "\r\n";
    }
    if (page.cuts > 0) {
      --page.cuts;
      body.resize(std::min(body.size(), page.cut_after));
    }
    return head + "\r\n" + body;
  }

  int socket_ = -1;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::map<std::string, Page> pages_;
  std::vector<size_t> offsets_;
};

}  // namespace regard::test
