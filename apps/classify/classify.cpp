#include "apps/classify/classify.h"

#include <algorithm>

#include "apps/draws/draws.h"
#include "base/check.h"
#include "base/error.h"

namespace lumen::classify {
namespace {

constexpr uint64_t kMoveDraws = 0x6d6f7665;

// Shifts an image of `side` x `side` pixels down and right, filling with -1, and optionally mirrors it.
void move_image(std::span<float> image, int64_t side, int64_t channels, int64_t down, int64_t right, bool mirrored) {
  const std::vector<float> from(image.begin(), image.end());
  for (int64_t y = 0; y < side; ++y)
    for (int64_t x = 0; x < side; ++x) {
      const int64_t v = y - down, h = (mirrored ? side - 1 - x : x) - right;
      const bool inside = v >= 0 && v < side && h >= 0 && h < side;
      for (int64_t c = 0; c < channels; ++c)
        image[(y * side + x) * channels + c] = inside ? from[(v * side + h) * channels + c] : -1;
    }
}

}  // namespace

apps::NetworkInputs images_of(const apps::Images& images, const apps::Network& network,
                              std::span<const int64_t> which) {
  apps::NetworkInputs out;
  out.symbols = {{"B", std::ssize(which)}};
  out.numbers["images"] = apps::framed(images, which, network.config("size"));
  for (const int64_t image : which) out.integers["shown"].push_back(images.labels[image]);
  return out;
}

apps::NetworkInputs classify_batch(const apps::Images& images, const apps::Network& network, int64_t step,
                                   int64_t batch, bool moves) {
  const uint32_t seed = network.settings().seed;
  apps::NetworkInputs out = images_of(images, network, apps::batch_of_passes(images.count, seed, step, batch));
  if (!moves) return out;
  const int64_t side = network.config("size"), channels = images.channels, far = side / 8;
  for (int64_t i = 0; i < batch; ++i) {
    Draws draws(seed ^ kMoveDraws, step, i);
    const int64_t down = draws.below(2 * far + 1) - far, right = draws.below(2 * far + 1) - far;
    const std::span<float> all = out.numbers["images"];
    move_image(all.subspan(i * side * side * channels, side * side * channels), side, channels, down, right,
               draws.below(2) == 1);
  }
  return out;
}

double stepped_rate(double rate, int64_t step, int64_t steps) {
  return 4 * step >= 3 * steps ? rate / 100 : 2 * step >= steps ? rate / 10 : rate;
}

std::vector<int32_t> classes_of(std::span<const float> logits, int64_t rows) {
  const int64_t classes = std::ssize(logits) / rows;
  std::vector<int32_t> out;
  for (int64_t i = 0; i < rows; ++i) {
    const auto row = logits.subspan(i * classes, classes);
    out.push_back(std::max_element(row.begin(), row.end()) - row.begin());
  }
  return out;
}

double recognized(const apps::Images& images, const apps::Network& network, int64_t count, int64_t batch,
                  const std::function<std::vector<float>(const apps::NetworkInputs&)>& logits,
                  const std::atomic<bool>* stop) {
  const int64_t all = count > 0 ? std::min(count, images.count) : images.count;
  int64_t right = 0;
  for (int64_t first = 0; first < all; first += batch) {
    if (stop && *stop) throw Error(Exit::interrupted, "interrupted");
    std::vector<int64_t> which;
    for (int64_t i = 0; i < batch; ++i) which.push_back((first + i) % images.count);
    const std::vector<int32_t> found = classes_of(logits(images_of(images, network, which)), batch);
    for (int64_t i = 0; i < std::min(batch, all - first); ++i) right += found[i] == images.labels[which[i]];
  }
  return double(right) / double(all);
}

}  // namespace lumen::classify
