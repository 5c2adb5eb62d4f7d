#include "base/structured/page_policy.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <array>

#include "base/check.h"
#include "base/structured/base64.h"

namespace lumen {

std::string policy_digest(std::string_view page, std::string_view tag) {
  const std::string open = fmt::format("<{}>", tag), close = fmt::format("</{}>", tag);
  const size_t begin = page.find(open), end = page.find(close, std::min(begin, page.size()));
  LUMEN_CHECK(begin != std::string_view::npos && end != std::string_view::npos, "the page has no {}", open);
  const std::string_view text = page.substr(begin + open.size(), end - begin - open.size());
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return "'sha256-" + encode_base64(std::string(digest.begin(), digest.end())) + "'";
}

}  // namespace lumen
