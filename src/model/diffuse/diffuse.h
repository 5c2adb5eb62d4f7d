// Diffusion: a family that says where noise comes from, trained on images and followed back from noise to images. Knows
// families by their functions:
//
// loss(images, shown, seed)                of images [B, S, S, C] in -1 .. 1 and what they show [B]
// guided(x, t, label, guidance)            the velocity at x, noise - image, at time t (1: noise, 0: an image)
// config keys size, channels, classes      what images they are of
// config key noise_steps                   above 0, where a family has it: noise comes in so many steps (DDPM, Ho and
// others 2020), and guided() gives the noise itself
// signal(t)                                then: the share of an image's variance that is left at time t
//
// Proved by tests/model/diffuse/diffuse_test.cpp.
//
// May include: base, base/structured, graph/sites, model/compress/activations, model/compress/round, model/file,
// model/images, model/linear, model/network, number/codec, number/facts, run/engine.
// Offers: quality.h, stored.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/images/images.h"
#include "model/network/network.h"

namespace lumen::model {

// What a step of training reads: its images follow from the seed and the number of the step, every image once in each
// pass. They stand in the middle of the family's square, black around. Error when they are larger, or of other channels
// or more classes.
NetworkInputs diffusion_batch(const Images& images, const Network& network, int64_t step, int64_t batch);

// How noise is followed back. `euler`: along the velocity. `heun`: twice as many velocities, the mean of both ends.
// `dpm2`: DPM-Solver++ of second order with two steps' images (arXiv 2211.01095), in logarithms of signal over noise.
// `ddim`: of families that give the noise, without any that is drawn anew (Song and others 2021, eta 0).
enum class DiffusionSampler : uint8_t { euler, heun, dpm2, ddim };
DiffusionSampler diffusion_sampler(const std::string& name);  // error (exit 2) names all
bool gives_noise(const Network& network);
DiffusionSampler usual_sampler(const Network& network);  // euler, or ddim

struct Sampling {
  DiffusionSampler sampler = DiffusionSampler::euler;
  int64_t steps = 50;
  double guidance = 2;      // 1: what the label says; 0: as if there were none
  uint64_t seed = 1;        // of the noise: the same noise for the same seed and number of the image
  int64_t batch = 16;       // images at once
  std::string change = {};  // of the network, with which it is run (Network::define)
};
// Hears what a change's function gave beside the velocity, each time it ran.
using SamplingWatch = std::function<void(const std::map<std::string, std::vector<float>>& results)>;

// Images [labels, S, S, C] in -1 .. 1, by the mean of the weights over the steps where there is one. `told` hears how
// many are done. Fewer when `stop` became true. Error (exit 2) for a sampler of the other kind of families.
std::vector<float> sampled(Network& network, const std::vector<int32_t>& labels, const Sampling& how,
                           const std::atomic<bool>* stop = nullptr, const std::function<void(int64_t)>& told = {},
                           const SamplingWatch& watch = {});

}  // namespace lumen::model
