#include "cli/serve/page.h"

#include <string>
#include <vector>

#include "base/embedded.h"
#include "base/structured/page_policy.h"

// The build generates this from the folder page (cmake/page.cmake).
namespace lumen::embedded {
std::vector<File> page();
}

namespace lumen::cli {
namespace {

HttpReply made_page() {
  HttpReply out;
  out.type = "text/html; charset=utf-8";
  out.body = std::string(embedded::page().at(0).text);
  out.headers = {{"Content-Security-Policy", "default-src 'none'; connect-src 'self'; img-src data:; style-src " +
                                                 policy_digest(out.body, "style") + "; script-src " +
                                                 policy_digest(out.body, "script") +
                                                 "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                                                 "require-trusted-types-for 'script'; trusted-types 'none'"},
                 {"Cache-Control", "no-cache"},
                 {"Cross-Origin-Opener-Policy", "same-origin"},
                 {"Referrer-Policy", "no-referrer"},
                 {"X-Content-Type-Options", "nosniff"}};
  return out;
}

}  // namespace

HttpReply page_reply() {
  static const HttpReply page = made_page();
  return page;
}

}  // namespace lumen::cli
