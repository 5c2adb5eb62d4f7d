// What tests put around a program that runs without an engine: how it reads, writes and ends, with a C library or by
// asking Linux.
#pragma once

#include <cstdlib>
#include <string>

namespace lumen {

inline bool is_installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

// take: whether there was so much to read; give; leave; BEGIN: the head of what is called first.
inline constexpr const char* kWithLibrary =
    "#include <unistd.h>\n"
    "static int take(void* to, unsigned n) { return read(0, to, n) == (long)n; }\n"
    "static void give(const void* from, unsigned n) { if (write(1, from, n) != (long)n) _exit(2); }\n"
    "static void leave(int code) { _exit(code); }\n"
    "#define BEGIN int main(void)\n";
inline constexpr const char* kWithoutLibrary =
    "static long ask(long number, long a, long b, long c) {\n"
    "  register long r7 __asm__(\"r7\") = number;\n"
    "  register long r0 __asm__(\"r0\") = a;\n"
    "  register long r1 __asm__(\"r1\") = b;\n"
    "  register long r2 __asm__(\"r2\") = c;\n"
    "  __asm__ volatile(\"svc 0\" : \"+r\"(r0) : \"r\"(r7), \"r\"(r1), \"r\"(r2) : \"memory\");\n"
    "  return r0;\n}\n"
    "static int take(void* to, unsigned n) { return ask(3, 0, (long)to, n) == (long)n; }\n"
    "static void give(const void* from, unsigned n) { ask(4, 1, (long)from, n); }\n"
    "static void leave(int code) { ask(1, code, 0, 0); }\n"
    "#define BEGIN void _start(void)\n";

}  // namespace lumen
