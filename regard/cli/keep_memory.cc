#include "regard/cli/keep_memory.h"

#include <malloc.h>

namespace regard::cli {

void keep_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

}  // namespace regard::cli
