// Measures of image quality: of pairs sampled from the same noise, and of sets by a classifier's features. All sums in
// double. Proved by tests/apps/diffuse/quality_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/images/images.h"
#include "apps/network/network.h"

namespace lumen::diffuse {

// 10 log10(range^2 / MSE) of each image, the mean over images, in dB; `range` is max - min of each reference image, as
// in SegQuant. Equal images: kMostDecibels. Images [count, each].
inline constexpr double kMostDecibels = 100;
double peak_signal_to_noise(std::span<const float> reference, std::span<const float> images, int64_t each);
// Structural similarity (Wang et al. 2004) of gray images [count, side, side] in -1 .. 1, mapped to 0 .. 1: Gaussian
// windows of 11 x 11, sigma 1.5, without padding; C1 = 0.01^2, C2 = 0.03^2; the mean over windows and images.
double structural_similarity(std::span<const float> reference, std::span<const float> images, int64_t side);

// Frechet distance of two sets of features [count, width] as normal distributions: |m1 - m2|^2 + tr(S1 + S2 - 2 (S1^1/2
// S2 S1^1/2)^1/2), covariances with n - 1; eigenvalues that rounding made negative count as 0. Error with fewer than
// two rows.
double frechet_distance(std::span<const float> a, std::span<const float> b, int64_t width);
// 1 - cos between features of pairs, averaged.
double cosine_distance(std::span<const float> reference, std::span<const float> features, int64_t width);

// The outputs of a classifier of small images (functions features and logits).
struct Classified {
  int64_t width = 0;
  std::vector<float> features;   // [count, width]
  std::vector<int32_t> classes;  // argmax of the logits
  double accuracy(std::span<const int32_t> labels) const;
};
Classified classified(apps::Network& classifier, std::span<const float> images, int64_t batch = 100);
// Trains a classifier on images for `steps` steps and saves it in a folder, or loads it from there. `told` receives
// steps and loss.
std::unique_ptr<apps::Network> image_classifier(run::Engine& engine, const model::arch::Library& library,
                                                const apps::NetworkSettings& settings, const apps::Images& images,
                                                const std::filesystem::path& folder, int64_t steps,
                                                const std::function<void(int64_t, double)>& told = {},
                                                const std::atomic<bool>* stop = nullptr);

}  // namespace lumen::diffuse
