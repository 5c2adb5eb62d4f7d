// Image classifiers: trained on images and labels, and run in 8-bit integers with ranges that are calibrated, measured
// at run time, or estimated before a layer runs (ranged.h). Depends on these functions of a family:
//
// loss(images, shown, seed)           of images [B, S, S, C] in -1 .. 1 and their labels [B]
// logits(images)                      one number for each class
// config keys size, channels, classes the images' form
//
// Proved by tests/apps/classify/classify_test.cpp.
//
// May include: apps/classify/ranges, apps/draws, apps/images, apps/network, base, base/structured, run/engine/portable.
// Offers: corrupt.h, ranged.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "apps/images/images.h"
#include "apps/network/network.h"

namespace lumen::classify {

// The inputs of a training step: its images follow from the seed and the step number, every image once per pass.
// `moves`: each is shifted by up to an eighth of its side, filled with black, and half of them are mirrored; these,
// too, follow from seed and step.
apps::NetworkInputs classify_batch(const apps::Images& images, const apps::Network& network, int64_t step,
                                   int64_t batch, bool moves);

// Inputs of `logits` for these images, framed. "shown": their labels.
apps::NetworkInputs images_of(const apps::Images& images, const apps::Network& network, std::span<const int64_t> which);

// The rate of a step: `rate`, a tenth of it after half of all steps, and a hundredth after three quarters.
double stepped_rate(double rate, int64_t step, int64_t steps);

// The argmax of each row of [rows, classes], the first of equals.
std::vector<int32_t> classes_of(std::span<const float> logits, int64_t rows);

// Accuracy on the first `count` images (0: all), in batches of `batch`; `logits` computes the logits of inputs. The
// last batch is padded with the first images, so that one program serves all.
double recognized(const apps::Images& images, const apps::Network& network, int64_t count, int64_t batch,
                  const std::function<std::vector<float>(const apps::NetworkInputs&)>& logits,
                  const std::atomic<bool>* stop = nullptr);

}  // namespace lumen::classify
