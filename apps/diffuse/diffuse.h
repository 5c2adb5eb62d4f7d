// Diffusion: a family that predicts noise, trained on images and sampled from noise to images. Depends on these
// functions of a family:
//
// loss(images, shown, seed)                of images [B, S, S, C] in -1 .. 1 and their labels [B]
// guided(x, t, label, guidance)            the velocity at x, noise - image, at time t (1: noise, 0: an image)
// config keys size, channels, classes      the images' form
// config key noise_steps                   optional, > 0: the number of discrete noise steps (DDPM, Ho and others
// 2020); guided() then returns the noise itself
// signal(t)                                then: the share of an image's variance that is left at time t
//
// Proved by tests/apps/diffuse/diffuse_test.cpp.
//
// May include: apps/diffuse/sites, apps/draws, apps/image_fit, apps/images, apps/network, base, base/structured,
// model/compress/activations, model/compress/round, model/file, model/linear, number/codec, number/facts, run/engine.
// Offers: quality.h, stored.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/images/images.h"
#include "apps/network/network.h"

namespace lumen::diffuse {

// The inputs of a training step: its images follow from the seed and the step number, every image once per pass. They
// are centred in the family's square, with black padding. Error when they are larger, or have other channels or more
// classes.
apps::NetworkInputs diffusion_batch(const apps::Images& images, const apps::Network& network, int64_t step,
                                    int64_t batch);

// The sampler. `euler`: along the velocity. `heun`: the mean of the velocities at both ends, twice as many evaluations.
// `dpm2`: second-order multistep DPM-Solver++ (arXiv 2211.01095), in the log signal-to-noise ratio. `ddim`: for
// families that predict the noise, deterministic (Song and others 2021, eta 0).
enum class DiffusionSampler : uint8_t { euler, heun, dpm2, ddim };
DiffusionSampler diffusion_sampler(const std::string& name);  // error (exit 2) that lists all
bool gives_noise(const apps::Network& network);
DiffusionSampler usual_sampler(const apps::Network& network);  // euler, or ddim

struct Sampling {
  DiffusionSampler sampler = DiffusionSampler::euler;
  int64_t steps = 50;
  double guidance = 2;      // 1: conditional; 0: unconditional
  uint64_t seed = 1;        // of the noise, a function of the seed and the image's number
  int64_t batch = 16;       // images per batch
  std::string change = {};  // of the network, with which it is run (Network::define)
};
// Receives the results of a change's function other than the velocity, each time it ran.
using SamplingWatch = std::function<void(const std::map<std::string, std::vector<float>>& results)>;

// Images [labels, S, S, C] in -1 .. 1, with averaged weights where they exist. `told` receives the number done. Fewer
// when `stop` became true. Error (exit 2) for a sampler that does not suit the family.
std::vector<float> sampled(apps::Network& network, const std::vector<int32_t>& labels, const Sampling& how,
                           const std::atomic<bool>* stop = nullptr, const std::function<void(int64_t)>& told = {},
                           const SamplingWatch& watch = {});

}  // namespace lumen::diffuse
