#include "apps/image_fit/image_fit.h"

#include "base/error.h"

namespace lumen::apps {

void require_images_fit(const Images& images, const Network& network) {
  const int64_t size = network.config("size"), channels = network.config("channels"),
                classes = network.config("classes");
  if (images.height > size || images.width > size || images.channels != channels)
    throw user_error("images of {} x {} with {} channels do not fit the family's {} x {} with {}", images.height,
                     images.width, images.channels, size, size, channels);
  if (images.classes() > classes)
    throw user_error("images have {} classes, the family has {}", images.classes(), classes);
}

}  // namespace lumen::apps
