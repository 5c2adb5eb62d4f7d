#include "cli/output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "base/error.h"
#include "base/file/cut.h"
#include "base/printable.h"

namespace lumen::cli {
namespace {

thread_local std::string* collected = nullptr;

[[noreturn]] void fail(int number) {
  std::clearerr(stdout);
  if (number == EPIPE) throw ClosedOutput{};
  throw Error(Exit::user, fmt::format("cannot write to standard output: {}", std::strerror(number)),
              number == ENOSPC ? "the disk is full, or the output goes to a device that takes nothing" : "");
}

void write(std::string_view text) {
  require_whole_files(Look::size);  // a truncated file reads as zeros: no result of it is printed
  if (collected) {
    *collected += text;
    return;
  }
  errno = 0;
  if (std::fflush(stdout) != 0) fail(errno != 0 ? errno : EIO);
  // Not by stdio, which drops the rest of a text where a signal interrupts it (Ctrl-C during a chat's answer).
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(size_t(written));
    } else if (errno == EAGAIN) {  // a pipe that another program made non-blocking
      pollfd ready{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      fail(errno);
    }
  }
}

bool is_terminal() {
  return !collected && ::isatty(STDOUT_FILENO) != 0;
}

}  // namespace

void collect_output(std::string* into) {
  collected = into;
}

void put(std::string_view text) {
  write(printable(text, Lines::kept));
}

void put_text(std::string_view text) {
  if (is_terminal()) {
    write(harmless(text));
  } else {
    write(text);
  }
}

bool output_color() {
  const char* none = std::getenv("NO_COLOR");
  return is_terminal() && (!none || !*none);
}

void put_coloured(std::string_view text) {
  write(text);
}

void put_bytes(std::string_view bytes) {
  if (is_terminal())
    throw Error(Exit::usage, "the output is binary, and standard output is a terminal",
                "name a file with -o, or redirect it");
  write(bytes);
}

void finish_output() {
  if (collected) return;
  errno = 0;
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    const int number = errno != 0 ? errno : EIO;
    std::cout.clear();
    fail(number);
  }
}

}  // namespace lumen::cli
