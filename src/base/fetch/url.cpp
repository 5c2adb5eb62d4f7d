#include "base/fetch/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace lumen {
namespace {

constexpr size_t kLongest = 8192;  // bytes

int own_port(bool is_secure) {
  return is_secure ? 443 : 80;
}

bool is_letter_or_digit(unsigned char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_host(std::string_view host) {
  const bool is_address = host.starts_with('[') && host.ends_with(']');
  if (is_address) host = host.substr(1, host.size() - 2);
  return !host.empty() && std::ranges::all_of(host, [&](unsigned char c) {
    return is_letter_or_digit(c) || c == '-' || c == '.' || c == '_' || (is_address && c == ':');
  });
}

}  // namespace

std::string Url::origin() const {
  const std::string name = fmt::format("{}://{}", is_secure ? "https" : "http", host);
  return port == own_port(is_secure) ? name : fmt::format("{}:{}", name, port);
}

bool Url::is_loopback() const {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

std::optional<Url> parse_url(std::string_view text) {
  if (text.size() > kLongest || std::ranges::any_of(text, [](unsigned char c) { return c <= 0x20 || c == 0x7f; }))
    return std::nullopt;
  const auto strip = [&](std::string_view scheme) {
    if (text.size() < scheme.size() || !std::ranges::equal(text.substr(0, scheme.size()), scheme, [](char a, char b) {
          return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
        }))
      return false;
    text.remove_prefix(scheme.size());
    return true;
  };
  Url out;
  out.is_secure = strip("https://");
  if (!out.is_secure && !strip("http://")) return std::nullopt;
  out.port = own_port(out.is_secure);
  const size_t end = std::min(text.find_first_of("/?#"), text.size());
  std::string_view place = text.substr(0, end), path = text.substr(end);
  path = path.substr(0, path.find('#'));
  out.path = path.starts_with('/') ? std::string(path) : "/" + std::string(path);
  const size_t bracket = place.rfind(']'), colon = place.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    const std::string_view digits = place.substr(colon + 1);
    const auto [stop, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
    if (failure != std::errc() || stop != digits.data() + digits.size() || out.port < 1 || out.port > 65535)
      return std::nullopt;
    place = place.substr(0, colon);
  }
  if (!is_host(place)) return std::nullopt;  // this refuses user names, too
  out.host = place;
  for (char& c : out.host)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return out;
}

std::optional<Url> redirected(const Url& base, std::string_view location) {
  if (location.empty()) return std::nullopt;
  if (location.starts_with("//")) return parse_url((base.is_secure ? "https:" : "http:") + std::string(location));
  if (location.starts_with('/')) return parse_url(base.origin() + std::string(location));
  return parse_url(location);
}

std::string url_encoded(std::string_view text, std::string_view kept) {
  std::string out;
  for (const unsigned char c : text) {
    const bool plain = is_letter_or_digit(c) || c == '-' || c == '_' || c == '.' || c == '~' ||
                       kept.find(char(c)) != std::string_view::npos;
    out += plain ? std::string(1, char(c)) : fmt::format("%{:02X}", c);
  }
  return out;
}

}  // namespace lumen
