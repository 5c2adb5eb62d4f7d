// Pictures in requests: parts of messages' contents name them, and their bytes are in the request, in a file, or at
// another server. All of this comes from strangers: places are allowed one by one, and sizes and times are limited.
// Proved by tests/model/serve/pictures_test.cpp.
//
// May include: base, base/fetch, base/file, base/structured, model/arch/family, model/templates, model/text/unicode.
// Offers: picture_chat.h, picture_parts.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::model::serve {

// Which addresses of other servers are fetched.
enum class PictureUrls : uint8_t { off, on, any };  // `on`: public addresses; `any`: private ones as well

struct PictureRules {
  std::vector<std::filesystem::path> folders = {};  // whose files are read; empty: no files
  PictureUrls urls = PictureUrls::off;
  int64_t most = 16;                         // of one request
  uint64_t most_bytes = uint64_t{20} << 20;  // of one picture's file
  int64_t most_pixels = int64_t{1} << 26;
  double seconds = 10;  // for fetching one, redirects included
  int64_t redirects = 3;
};

// Why a picture is refused.
struct PictureFault : std::runtime_error {
  explicit PictureFault(const std::string& why, bool is_forbidden_ = false)
      : std::runtime_error(why), is_forbidden(is_forbidden_) {}
  bool is_forbidden;  // by the server's rules; others can be repaired by the client
};

// The bytes of a picture's file, and the media type that was said of it ("image/png"); empty: none was.
struct PictureBytes {
  std::string bytes, media_type;
};

// Finds the bytes of pictures by their addresses: data: URLs, http: and https: URLs, file: URLs and paths. Throws
// PictureFault.
class PictureSource {
 public:
  // Error if a folder does not exist.
  explicit PictureSource(PictureRules rules);
  const PictureRules& rules() const { return rules_; }
  // `is_stopped` is polled while it waits for another server; may be empty.
  PictureBytes read(std::string_view address, const std::function<bool()>& is_stopped) const;

 private:
  PictureBytes read_data(std::string_view url) const;
  PictureBytes read_file(std::string_view path) const;
  PictureBytes fetch(std::string_view url, const std::function<bool()>& is_stopped) const;

  PictureRules rules_;
};

}  // namespace lumen::model::serve
