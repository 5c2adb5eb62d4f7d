#include "model/serve/pictures/picture_parts.h"

#include <fmt/format.h>

#include "model/serve/pictures/pictures.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

bool is_type(const ordered_json& part, const char* type) {
  return part.is_object() && part.value("type", ordered_json()) == type;
}

// The address in {"image_url": {"url": ADDRESS}} or {"image_url": ADDRESS}.
std::string address_of(const ordered_json& part, const std::string& where) {
  const auto at = part.find("image_url");
  if (at != part.end() && at->is_string()) return *at;
  if (at != part.end() && at->is_object() && at->contains("url") && (*at)["url"].is_string()) return (*at)["url"];
  throw PictureFault(where + ": a picture is {'type': 'image_url', 'image_url': {'url': ADDRESS}}");
}

}  // namespace

std::vector<PicturePart> take_pictures(ordered_json& messages) {
  std::vector<PicturePart> out;
  if (!messages.is_array()) return out;
  for (size_t m = 0; m < messages.size(); ++m) {
    ordered_json& message = messages[m];
    if (!message.is_object() || !message.contains("content") || !message["content"].is_array()) continue;
    ordered_json& content = message["content"];
    for (size_t c = 0; c < content.size(); ++c) {
      const std::string where = fmt::format("messages[{}].content[{}]", m, c);
      if (is_type(content[c], "image"))
        throw PictureFault(where + ": a picture is {'type': 'image_url', 'image_url': {'url': ADDRESS}}");
      if (!is_type(content[c], "image_url") && !is_type(content[c], "input_image")) continue;
      out.push_back({address_of(content[c], where), where});
      content[c] = ordered_json{{"type", "image"}};
    }
  }
  return out;
}

void MixedContent::add_text(const std::string& text) {
  if (!text.empty()) parts_.push_back({{"type", "text"}, {"text", text}});
}

void MixedContent::add_picture(const std::string& address) {
  has_pictures_ = true;
  parts_.push_back({{"type", "image_url"}, {"image_url", {{"url", address}}}});
}

ordered_json MixedContent::json() const {
  if (has_pictures_) return parts_;
  std::string out;
  for (const ordered_json& part : parts_) out += part["text"].get_ref<const std::string&>();
  return out;
}

std::string data_url(const std::string& type, const std::string& base64) {
  return "data:" + type + ";base64," + base64;
}

MediaFit media_fit(std::string_view type, std::string_view bytes) {
  const bool is_named = type == "image/png" || type == "image/jpeg" || type == "image/jpg" || type == "image/webp" ||
                        type == "image/bmp" || type == "image/x-ms-bmp";
  if (!is_named) {
    const bool is_open =
        type.empty() || type == "image/*" || type == "application/octet-stream" || type == "binary/octet-stream";
    return is_open ? MediaFit::fits : MediaFit::no_picture;
  }
  const bool fits = type == "image/png"     ? bytes.starts_with("\x89PNG")
                    : type == "image/webp"  ? bytes.starts_with("RIFF")
                    : type.ends_with("bmp") ? bytes.starts_with("BM")
                                            : bytes.starts_with("\xff\xd8\xff");
  return fits ? MediaFit::fits : MediaFit::other_picture;
}

}  // namespace lumen::model::serve
