// Image classifiers: trained on images and what they show, and run in 8-bit whole numbers with ranges that are
// calibrated, found, or estimated before a layer runs (ranged.h). Knows families by their functions:
//
// loss(images, shown, seed)           of images [B, S, S, C] in -1 .. 1 and what they show [B]
// logits(images)                      one number for each class
// config keys size, channels, classes what images they are of
//
// Proved by tests/model/classify/classify_test.cpp.
//
// May include: base, base/structured, graph/ranges, model/images, model/network, run/engine/portable.
// Offers: corrupt.h, ranged.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/images/images.h"
#include "model/network/network.h"

namespace lumen::model {

// Error when images are larger than the family's, or of other channels or more classes.
void require_images_fit(const Images& images, const Network& network);

// What a step of training reads: its images follow from the seed and the number of the step, every image once in each
// pass. `moves`: each is moved by up to an eighth of its side, black comes in, and every other one is mirrored; those
// too follow from seed and step.
NetworkInputs classify_batch(const Images& images, const Network& network, int64_t step, int64_t batch, bool moves);

// These images, framed: what logits read. Shown is what they show.
NetworkInputs images_of(const Images& images, const Network& network, std::span<const int64_t> which);

// The rate of a step: `rate`, a tenth of it behind half of all steps, and a hundredth behind three quarters.
double stepped_rate(double rate, int64_t step, int64_t steps);

// The class with the largest number of each row of [rows, classes], the first of equals.
std::vector<int32_t> classes_of(std::span<const float> logits, int64_t rows);

// How much of the first `count` images (0: all) is recognized, by logits of `batch` at once; `logits` gives those of
// inputs. The last batch is filled up with the first images, so that one program does for all.
double recognized(const Images& images, const Network& network, int64_t count, int64_t batch,
                  const std::function<std::vector<float>(const NetworkInputs&)>& logits,
                  const std::atomic<bool>* stop = nullptr);

}  // namespace lumen::model
