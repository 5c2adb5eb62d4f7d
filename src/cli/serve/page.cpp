#include "cli/serve/page.h"

#include <openssl/sha.h>

#include <array>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/embedded.h"
#include "base/structured/base64.h"

// The build generates this from page.html.
namespace lumen::embedded {
std::vector<File> page();
}

namespace lumen::cli {
namespace {

// The digest of the content of a tag, in the form of a Content-Security-Policy.
std::string policy_digest(const std::string& page, const std::string& tag) {
  const std::string open = "<" + tag + ">";
  const size_t begin = page.find(open), end = page.find("</" + tag + ">");
  LUMEN_CHECK(begin != std::string::npos && end != std::string::npos && begin < end);
  const std::string text = page.substr(begin + open.size(), end - begin - open.size());
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return "'sha256-" + encode_base64(std::string(digest.begin(), digest.end())) + "'";
}

HttpReply made_page() {
  HttpReply out;
  out.type = "text/html; charset=utf-8";
  out.body = std::string(embedded::page().at(0).text);
  out.headers = {
      {"Content-Security-Policy",
       "default-src 'none'; connect-src 'self'; img-src data:; style-src " + policy_digest(out.body, "style") +
           "; script-src " + policy_digest(out.body, "script") +
           "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"},
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
