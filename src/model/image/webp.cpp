#include <webp/decode.h>

#include "model/image/decoders.h"

namespace lumen::model::image {

Image read_webp(const Encoded& file) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(file.bytes.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes, file.bytes.size(), &features) != VP8_STATUS_OK) file.refuse("the WebP data is damaged");
  if (features.has_animation != 0) file.refuse("this WebP file is an animation, and a picture stands still");
  Image out = file.room(features.width, features.height);
  if (!WebPDecodeRGBInto(bytes, file.bytes.size(), out.rgb.data(), out.rgb.size(), int(out.width * 3)))
    file.refuse("the WebP data is damaged or ends early");
  return out;
}

}  // namespace lumen::model::image
