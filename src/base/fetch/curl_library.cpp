#include "base/fetch/curl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "base/error.h"

namespace lumen {
namespace {

// The same interface is built with OpenSSL and with GnuTLS.
constexpr const char* kFiles[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
constexpr const char* kHint =
    "Debian and Ubuntu have it in the package libcurl4, Fedora in libcurl, Alpine in libcurl; LUMEN_CURL_LIBRARY names "
    "another file";

CurlLibrary open() {
  std::vector<const char*> names(std::begin(kFiles), std::end(kFiles));
  if (const char* own = std::getenv("LUMEN_CURL_LIBRARY"); own && *own) names = {own};
  void* handle = nullptr;
  std::string reason;
  for (const char* name : names) {
    handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle) break;
    if (const char* said = ::dlerror(); said && reason.empty()) reason = said;
  }
  if (!handle) throw Error(Exit::hardware, fmt::format("downloads need libcurl, which is missing: {}", reason), kHint);
  const auto find = [&](const char* name, auto* function) {
    void* const address = ::dlsym(handle, name);
    if (!address) throw Error(Exit::hardware, fmt::format("this libcurl has no function {}", name), kHint);
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(address);
  };
  CurlLibrary out{};
  find("curl_global_init", &out.global_init);
  find("curl_easy_init", &out.easy_init);
  find("curl_easy_cleanup", &out.easy_cleanup);
  find("curl_easy_reset", &out.easy_reset);
  find("curl_easy_setopt", &out.easy_setopt);
  find("curl_easy_perform", &out.easy_perform);
  find("curl_easy_getinfo", &out.easy_getinfo);
  find("curl_easy_strerror", &out.easy_strerror);
  find("curl_slist_append", &out.slist_append);
  find("curl_slist_free_all", &out.slist_free_all);
  if (out.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    throw Error(Exit::hardware, "libcurl cannot be initialized", "free memory");
  return out;
}

}  // namespace

const CurlLibrary& curl_library() {
  static const CurlLibrary library = open();
  return library;
}

}  // namespace lumen
