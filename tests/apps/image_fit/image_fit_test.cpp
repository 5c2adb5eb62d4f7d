// Needs: cpu. Images that a network does not take are refused: larger ones, others in channels, and more classes.
#include "apps/image_fit/image_fit.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::apps {
namespace {

std::string refusal(const Images& images, const Network& network) {
  try {
    require_images_fit(images, network);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(ImageFit, ImagesThatANetworkDoesNotTakeAreRefused) {
  NetworkSettings settings;
  settings.family = "small_images";
  settings.size = "xs";
  settings.config = {{"size", 16}, {"channels", 1}, {"classes", 3}};
  const Network network(model::engine(), *model::test_library(), settings);
  Images images = made_up_images(8, 16, 1);
  images.labels.assign(8, 2);
  EXPECT_EQ(refusal(images, network), "");
  images.labels[5] = 3;
  EXPECT_EQ(refusal(images, network), "images have 4 classes, the family has 3");
  EXPECT_EQ(refusal(made_up_images(8, 17, 1), network),
            "images of 17 x 17 with 1 channels do not fit the family's 16 x 16 with 1");
  EXPECT_EQ(refusal(with_colors(made_up_images(8, 16, 1), 2), network),
            "images of 16 x 16 with 3 channels do not fit the family's 16 x 16 with 1");
}

}  // namespace
}  // namespace lumen::apps
