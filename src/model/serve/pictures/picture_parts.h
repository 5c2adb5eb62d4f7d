// Pictures as parts of messages: {"type": "image_url", "image_url": {"url": ADDRESS}}, and contents of other APIs that
// become such parts. Proved by tests/model/serve/pictures_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lumen::model::serve {

// A picture of a message, and where it stands: "messages[0].content[1]".
struct PicturePart {
  std::string address, where;
};

// Takes the addresses of pictures out of messages, in their order: what is left of a part is {"type": "image"}. Throws
// PictureFault with the place for parts that have no address.
std::vector<PicturePart> take_pictures(nlohmann::ordered_json& messages);

// A content that is written part by part: a string as long as it has no pictures, and a list of parts from then on.
class MixedContent {
 public:
  void add_text(const std::string& text);
  void add_picture(const std::string& address);
  bool has_pictures() const { return has_pictures_; }
  nlohmann::ordered_json json() const;

 private:
  nlohmann::ordered_json parts_ = nlohmann::ordered_json::array();
  bool has_pictures_ = false;
};

// "data:TYPE;base64,DATA". `type` "image/*": not known.
std::string data_url(const std::string& type, const std::string& base64);

// Whether bytes that were said to be of this media type can be: true for types that name no kind of picture that is
// read. False also for types that are no pictures at all.
enum class MediaFit { fits, other_picture, no_picture };
MediaFit media_fit(std::string_view media_type, std::string_view bytes);

}  // namespace lumen::model::serve
