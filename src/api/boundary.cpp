#include "api/boundary.h"

#include <exception>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "cli/run_app.h"
#include "cli/version.h"

namespace lumen::api {
namespace {

struct LastError {
  std::string message, hint;
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

int failed(Exit code, const char* message, const char* hint) {
  last_error() = {message, hint};
  return exit_code(code);
}

}  // namespace

int guarded(const std::function<void()>& work) noexcept {
  try {
    try {
      work();
      return LUMEN_OK;
    } catch (const Error& error) {
      return failed(error.code(), error.what(), error.hint().c_str());
    } catch (const std::bad_alloc&) {
      return failed(Exit::hardware, "out of memory", "try a smaller model, batch or context");
    } catch (const std::exception& error) {
      verbose(fmt::format("internal error: {}", error.what()));
      return failed(Exit::user, "an internal error of the library", "please report it");
    } catch (...) {
      return failed(Exit::user, "something that is no error was thrown", "");
    }
  } catch (...) {  // there was no memory even for the message
    return LUMEN_HARDWARE;
  }
}

void require(const void* pointer, const char* what) {
  if (!pointer) throw usage_error("{} is null", what);
}

char* handed_over(std::string_view text) {
  const std::string ended(text);
  return handed_over(std::span<const char>(ended.c_str(), ended.size() + 1));
}

bool Listener::tell(std::string_view piece) const {
  return !on_text_ || on_text_(context_, piece.data(), piece.size()) != 0;
}

void Listener::ask() const {
  if (!tell({"", 0})) throw Error(Exit::interrupted, "stopped");
}

}  // namespace lumen::api

extern "C" {

int lumen_api_version(void) {
  return LUMEN_API_VERSION;
}

const char* lumen_version(void) {
  return lumen::cli::kVersion;
}

const char* lumen_last_error(const char** hint) {
  const auto& error = lumen::api::last_error();
  if (hint) *hint = error.hint.c_str();
  return error.message.c_str();
}

void lumen_free(void* memory) {
  std::free(memory);
}

}  // extern "C"
