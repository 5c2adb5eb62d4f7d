#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace lumen {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "lumen: internal error at %s:%d: %s\n  %s\n", file, line, condition, message.c_str());
  std::fputs("  this is a bug in Lumen, not in your data; please report it with the command you ran\n", stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace lumen
