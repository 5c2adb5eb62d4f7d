#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/fetch/fetch.h"
#include "base/fetch/url.h"
#include "base/file/file.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "base/structured/base64.h"
#include "model/serve/pictures/pictures.h"

namespace lumen::model::serve {
namespace {

constexpr size_t kShown = 80;  // characters of an address in a message

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
}

bool begins(std::string_view text, std::string_view with) {
  return text.size() >= with.size() &&
         std::equal(with.begin(), with.end(), text.begin(), [](char a, char b) { return a == lower(b); });
}

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

std::string shown(std::string_view address) {
  return "'" + printable(std::string(address.substr(0, kShown))) + (address.size() > kShown ? ".." : "") + "'";
}

// Text with %41 for "A"; nullopt where the digits are missing, and for zero bytes.
std::optional<std::string> percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : lower(c) >= 'a' && lower(c) <= 'f' ? lower(c) - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      out += text[at];
      continue;
    }
    if (at + 2 >= text.size() || digit(text[at + 1]) < 0 || digit(text[at + 2]) < 0) return std::nullopt;
    out += char(digit(text[at + 1]) * 16 + digit(text[at + 2]));
    at += 2;
  }
  if (out.find('\0') != std::string::npos) return std::nullopt;
  return out;
}

// Whether `path` is in `folder`; both are canonical, so neither has links or "..".
bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

// The media type in a header or a data: URL, without parameters.
std::string media_type_in(std::string_view text) {
  text = text.substr(0, text.find(';'));
  while (text.ends_with(' ')) text.remove_suffix(1);
  return lowered(text);
}

}  // namespace

PictureSource::PictureSource(PictureRules rules) : rules_(std::move(rules)) {
  for (std::filesystem::path& folder : rules_.folders) {
    std::error_code failure;
    std::filesystem::path whole = std::filesystem::canonical(folder, failure);
    if (failure || !std::filesystem::is_directory(whole, failure))
      throw user_error("'{}' is no folder", folder.string());
    if (!whole.has_filename() && whole.has_parent_path() && whole != whole.root_path()) whole = whole.parent_path();
    folder = std::move(whole);
  }
}

PictureBytes PictureSource::read(std::string_view address, const std::function<bool()>& is_stopped) const {
  if (begins(address, "data:")) return read_data(address.substr(5));
  if (begins(address, "http://") || begins(address, "https://")) return fetch(address, is_stopped);
  if (begins(address, "file:")) {
    std::string_view path = address.substr(5);
    if (path.starts_with("//")) path.remove_prefix(2);
    if (begins(path, "localhost/")) path.remove_prefix(9);
    const std::optional<std::string> plain = percent_decoded(path);
    if (!plain) throw PictureFault(shown(address) + " is no address of a file");
    return read_file(*plain);
  }
  // A scheme of several letters before a colon is none of these; a single one is a drive elsewhere.
  const size_t colon = address.find(':');
  const bool has_scheme = colon != std::string_view::npos && colon > 1 && colon < address.find('/');
  if (has_scheme)
    throw PictureFault(shown(address) + " is no address that is read: data:, http:, https: and file: are");
  return read_file(address);
}

PictureBytes PictureSource::read_data(std::string_view url) const {
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos) throw PictureFault("a data: URL has no comma before its data");
  const std::string head = lowered(url.substr(0, comma));
  std::string_view data = url.substr(comma + 1);
  if (!head.ends_with(";base64")) throw PictureFault("a data: URL of a picture is 'data:image/png;base64,..'");
  while (data.ends_with('=')) data.remove_suffix(1);
  if (data.size() / 4 * 3 > rules_.most_bytes)
    throw PictureFault(
        fmt::format("a picture has more than {}, which this server reads", size_text(double(rules_.most_bytes))));
  std::string plain;
  if (data.find_first_of("\r\n \t-_%") != std::string_view::npos) {
    // Some programs wrap lines, and some write the letters for addresses, or encode '+' and '/'.
    const std::optional<std::string> decoded = percent_decoded(data);
    if (!decoded) throw PictureFault("the picture's data is no base64");
    for (const char c : *decoded)
      if (c != '\r' && c != '\n' && c != ' ' && c != '\t' && c != '=') plain += c == '-' ? '+' : c == '_' ? '/' : c;
    data = plain;
  }
  if (data.empty()) throw PictureFault("the picture has no data");
  if (data.size() % 4 == 1 || data.find('=') != std::string_view::npos)
    throw PictureFault("the picture's data is no base64: it is cut, or has '=' inside");
  try {
    return {decode_base64(data, "the picture's data"), media_type_in(head)};
  } catch (const Error& error) {
    throw PictureFault(error.what());
  }
}

PictureBytes PictureSource::read_file(std::string_view given) const {
  if (rules_.folders.empty())
    throw PictureFault("this server reads no files: send the picture's data, or start it with --media-path FOLDER",
                       true);
  // Every path outside of the folders gets the same answer, whether there is a file or not.
  const PictureFault none(shown(given) + " is no file in a folder of --media-path", true);
  if (given.empty() || given.find('\0') != std::string_view::npos) throw none;
  const std::filesystem::path path = std::string(given);
  for (const std::filesystem::path& folder : rules_.folders) {
    std::error_code failure;
    const std::filesystem::path whole = std::filesystem::canonical(path.is_absolute() ? path : folder / path, failure);
    if (failure || !is_inside(whole, folder) || !std::filesystem::is_regular_file(whole, failure)) continue;
    try {
      return {lumen::read_file(whole, rules_.most_bytes), {}};
    } catch (const Error&) {
      throw PictureFault(
          fmt::format("{} cannot be read, or has more than {}", shown(given), size_text(double(rules_.most_bytes))));
    }
  }
  throw none;
}

PictureBytes PictureSource::fetch(std::string_view given, const std::function<bool()>& is_stopped) const {
  if (rules_.urls == PictureUrls::off)
    throw PictureFault("this server fetches no pictures: send the picture's data, or start it with --image-urls on",
                       true);
  std::optional<Url> url = parse_url(given);
  if (!url) throw PictureFault(shown(given) + " is no address of a picture");
  const Stopwatch watch;
  Fetcher fetcher;
  const auto is_over = [&] { return is_stopped && is_stopped(); };
  for (int64_t hop = 0; hop <= rules_.redirects; ++hop) {
    FetchRequest request;
    request.url = url->text();
    request.headers = {{"Accept", "image/*"}};
    request.most = rules_.most_bytes;
    const double left = rules_.seconds - watch.seconds();
    if (left <= 0) throw PictureFault(shown(given) + " was not fetched in time");
    request.connect_seconds = request.idle_seconds = request.whole_seconds = left;
    request.is_public = rules_.urls != PictureUrls::any;
    std::string bytes;
    const FetchReply reply = fetcher.ask(
        request,
        [&](const FetchReply&, std::string_view piece) {
          bytes += piece;
          return true;
        },
        is_over);
    // What a failed connection says would show which private addresses answer.
    if (reply.failure != FetchFailure::none)
      throw PictureFault(shown(given) + " cannot be fetched" +
                         (reply.failure == FetchFailure::refused ? ": " + reply.reason : std::string()));
    if (reply.status == 301 || reply.status == 302 || reply.status == 303 || reply.status == 307 ||
        reply.status == 308) {
      const bool was_secure = url->is_secure;
      url = redirected(*url, reply.header("location"));
      if (!url || (was_secure && !url->is_secure)) throw PictureFault(shown(given) + " leads to no address");
      continue;
    }
    if (reply.status != 200)
      throw PictureFault(fmt::format("{} cannot be fetched: its server answers {}", shown(given), reply.status));
    return {std::move(bytes), media_type_in(reply.header("content-type"))};
  }
  throw PictureFault(fmt::format("{} leads on more than {} times", shown(given), rules_.redirects));
}

}  // namespace lumen::model::serve
