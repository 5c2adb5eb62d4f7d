#include "cli/serve/origins.h"

#include <algorithm>

#include "base/error.h"

namespace lumen::cli {
namespace {

constexpr const char* kMethods = "GET, HEAD, POST, DELETE, OPTIONS";
constexpr const char* kSecondsKept = "86400";  // for which a browser need not repeat a preflight

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = char(c + 32);
  return out;
}

bool is_origin(const std::string& text) {
  const size_t scheme = text.find("://");
  return text == "*" || text == "null" ||
         (scheme != std::string::npos && scheme > 0 && scheme + 3 < text.size() &&
          text.find('/', scheme + 3) == std::string::npos);
}

// A list of header names, which is sent back to the browser.
bool is_list_of_names(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == ',' || c == ' ';
  });
}

}  // namespace

bool is_loopback(std::string_view host) {
  const bool is_address = host.starts_with("127.") && std::all_of(host.begin(), host.end(), [](char c) {
                            return (c >= '0' && c <= '9') || c == '.';
                          });
  return is_address || host == "localhost" || host == "::1" || host == "[::1]";
}

std::string host_of(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme != std::string_view::npos) text.remove_prefix(scheme + 3);
  const size_t bracket = text.starts_with('[') ? text.find(']') : std::string_view::npos;
  std::string host = lower(text.substr(0, bracket != std::string_view::npos ? bracket + 1 : text.find(':')));
  if (host.ends_with('.')) host.pop_back();  // the same name, written as a full one
  return host;
}

Origins::Origins(OriginRules rules) : rules_(std::move(rules)) {
  for (std::string& origin : rules_.origins) {
    if (origin.ends_with('/')) origin.pop_back();
    if (!is_origin(origin)) throw usage_error("--cors takes an origin like https://chat.example, or '*': {}", origin);
    origin = lower(origin);
  }
  for (std::string& host : rules_.hosts) host = host_of(host);
}

bool Origins::shares_with(const std::string& origin) const {
  if (origin.empty()) return false;
  return std::any_of(rules_.origins.begin(), rules_.origins.end(),
                     [&](const std::string& one) { return one == "*" || one == lower(origin); });
}

// A page of this server, or of the local machine while the server listens there.
bool Origins::is_own_page(const HttpAsk& ask) const {
  const std::string host = lower(ask.host), origin = lower(ask.origin);
  if (!host.empty() && (origin == "http://" + host || origin == "https://" + host)) return true;
  return rules_.is_local && origin.starts_with("http") && is_loopback(host_of(origin));
}

std::string Origins::refusal(const HttpAsk& ask) const {
  const std::string host = host_of(ask.host);
  const bool is_listed = std::find(rules_.hosts.begin(), rules_.hosts.end(), host) != rules_.hosts.end();
  const bool has_hosts = rules_.is_local || !rules_.hosts.empty();
  // A client that is no browser may send no Host (HTTP/1.0).
  if (has_hosts && !ask.host.empty() && !is_loopback(host) && !is_listed)
    return "the request is for another host; the option --allow-host permits a name";
  const bool is_foreign = !ask.origin.empty() ? !is_own_page(ask) && !shares_with(ask.origin)
                                              : ask.is_cross_site && ask.method != "GET" && ask.method != "HEAD";
  // Browsers send such bodies for any page, without a preflight.
  const bool is_unasked = !ask.is_json && !ask.body.empty();
  if (is_foreign && (rules_.is_local || is_unasked))
    return "the request is from a page of another site; the option --cors permits an origin";
  return {};
}

std::vector<std::pair<std::string, std::string>> Origins::headers(const HttpAsk& ask) const {
  if (rules_.origins.empty()) return {};
  std::vector<std::pair<std::string, std::string>> out = {{"Vary", "Origin"}};
  if (shares_with(ask.origin)) out.emplace_back("Access-Control-Allow-Origin", ask.origin);
  return out;
}

HttpReply Origins::preflight(const HttpAsk& ask) const {
  HttpReply out;
  out.status = 204;
  out.headers.emplace_back("Access-Control-Allow-Methods", kMethods);
  out.headers.emplace_back("Access-Control-Max-Age", kSecondsKept);
  if (!ask.wanted_headers.empty() && is_list_of_names(ask.wanted_headers))
    out.headers.emplace_back("Access-Control-Allow-Headers", ask.wanted_headers);
  return out;
}

}  // namespace lumen::cli
