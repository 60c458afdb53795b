#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <new>
#include <type_traits>

#include "regard/kernel/view.h"

namespace regard::testing {

// Copies of what views show, each in memory that begins right behind or ends right before a page that may
// not be touched: a read or a write outside of a view's reach ends the program. With both edges tried each
// side is watched.
class GuardedCopies {
 public:
  enum class Edge : uint8_t { begin, end };
  explicit GuardedCopies(Edge edge) : edge_(edge) {}
  GuardedCopies(const GuardedCopies&) = delete;
  GuardedCopies& operator=(const GuardedCopies&) = delete;
  ~GuardedCopies() {
    for (const Map& map : maps_) munmap(map.at, map.size);
  }

  // A view of the same elements, in memory of its own; gaps between elements are copied too.
  template <class T>
  kernel::View<T> copy(const kernel::View<T>& view) {
    if (!view.data) return view;
    const Reach reach = reach_of(view.size, view.stride);
    kernel::View<T> result = view;
    result.data = reinterpret_cast<T*>(place(view.data, reach, sizeof(T)));
    return result;
  }
  template <class Void>
  kernel::BasicAnyView<Void> copy(const kernel::BasicAnyView<Void>& view) {
    if (!view) return view;
    const Reach reach = reach_of(view.size, view.stride);
    kernel::BasicAnyView<Void> result = view;
    result.data = place(view.data, reach, static_cast<size_t>(kernel::bytes(view.dtype)));
    return result;
  }
  // `size` bytes, copied.
  std::byte* copy(const void* data, size_t size) { return place(data, {0, static_cast<int64_t>(size)}, 1); }

 private:
  struct Map {
    void* at;
    size_t size;
  };
  // Offsets of elements from the first one: [begin, end).
  struct Reach {
    int64_t begin;
    int64_t end;
  };

  static Reach reach_of(const kernel::Extents& size, const kernel::Extents& stride) {
    Reach reach{0, 1};
    for (size_t axis = 0; axis < 4; ++axis) {
      if (size[axis] == 0) return {0, 0};
      const int64_t step = (size[axis] - 1) * stride[axis];
      reach.begin += std::min<int64_t>(step, 0);
      reach.end += std::max<int64_t>(step, 0);
    }
    return reach;
  }

  // The place of the element at offset 0.
  std::byte* place(const void* data, const Reach& reach, size_t element) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(reach.end - reach.begin) * element;
    const size_t room = (bytes + page - 1) / page * page;
    void* map = mmap(nullptr, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    maps_.push_back({map, room + 2 * page});
    std::byte* first = static_cast<std::byte*>(map) + page;
    if (room > 0 && mprotect(first, room, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    if (edge_ == Edge::end) first += room - bytes;
    const auto before = static_cast<std::ptrdiff_t>(reach.begin) * static_cast<std::ptrdiff_t>(element);
    if (bytes > 0) std::memcpy(first, static_cast<const std::byte*>(data) + before, bytes);
    return first - before;
  }

  Edge edge_;
  std::list<Map> maps_;
};

}  // namespace regard::testing
