// Whether a network takes images, by the config keys size, channels and classes of its family. Proved by
// tests/apps/image_fit/image_fit_test.cpp.
//
// May include: apps/images, apps/network, base.
#pragma once

#include "apps/images/images.h"
#include "apps/network/network.h"

namespace lumen::apps {

// Error when images are larger than the family's, or have other channels or more classes.
void require_images_fit(const Images& images, const Network& network);

}  // namespace lumen::apps
