#include "apps/diffuse/diffuse.h"

#include <algorithm>
#include <cmath>

#include "apps/draws/draws.h"
#include "apps/image_fit/image_fit.h"
#include "base/error.h"

namespace lumen::diffuse {
namespace {

constexpr uint64_t kNoiseDraws = 0x6e6f697365;
constexpr const char* kVelocity = "guided";

// The sampling of images, one time step after another.
class Walk {
 public:
  Walk(apps::Network& network, const std::vector<int32_t>& labels, const Sampling& how, const SamplingWatch& watch)
      : network_(network), how_(how), watch_(watch) {
    const int64_t rows = std::ssize(labels);
    inputs_.integers["label"] = labels;
    inputs_.numbers["guidance"] = {float(how.guidance)};
    inputs_.numbers["t"].resize(rows);
    inputs_.symbols = {{"B", rows}};
  }

  std::vector<float> run(std::vector<float> x, const std::atomic<bool>* stop) {
    for (int64_t k = 0; k < how_.steps && !(stop && *stop); ++k)
      step(x, 1 - 1.0 * k / how_.steps, 1 - 1.0 * (k + 1) / how_.steps);
    return x;
  }

 private:
  std::vector<float> velocity(const std::vector<float>& x, double t) {
    inputs_.numbers["x"] = x;
    std::fill(inputs_.numbers["t"].begin(), inputs_.numbers["t"].end(), float(t));
    if (!watch_) return network_.run(kVelocity, inputs_, true, how_.change);
    std::map<std::string, std::vector<float>> results = network_.results(kVelocity, inputs_, true, how_.change);
    watch_(results);
    return std::move(results.at(model::arch::kResult));
  }

  void step(std::vector<float>& x, double from, double to) {
    const std::vector<float> v = velocity(x, from);
    if (how_.sampler == DiffusionSampler::dpm2) return by_images(x, v, from, to);
    if (how_.sampler == DiffusionSampler::ddim) return by_noise(x, v, from, to);
    std::vector<float> next = x;
    for (size_t i = 0; i < x.size(); ++i) next[i] += (to - from) * v[i];
    if (how_.sampler == DiffusionSampler::heun && to > 0) {
      const std::vector<float> there = velocity(next, to);
      for (size_t i = 0; i < x.size(); ++i) next[i] = x[i] + (to - from) * 0.5 * (1.0 * v[i] + there[i]);
    }
    x = std::move(next);
  }

  // The image x - t v, predicted from the velocity, is extrapolated in the log signal-to-noise ratio, lambda = log((1 -
  // t) / t): x' = (t' / t) x + (1 - t') (1 - exp(-h)) D, where D extrapolates from this image and the previous one.
  void by_images(std::vector<float>& x, const std::vector<float>& v, double from, double to) {
    std::vector<float> image = x;
    for (size_t i = 0; i < x.size(); ++i) image[i] -= from * v[i];
    const double lambda = std::log((1 - from) / from), next = std::log((1 - to) / to), h = next - lambda;
    const bool looks_back = !last_.empty() && std::isfinite(h) && std::isfinite(last_h_);
    const double weight = looks_back ? h / (2 * last_h_) : 0;
    const double rest = to > 0 ? -std::expm1(-h) : 1;
    for (size_t i = 0; i < x.size(); ++i) {
      const double ahead = looks_back ? (1 + weight) * image[i] - weight * last_[i] : image[i];
      x[i] = to / from * x[i] + (1 - to) * rest * ahead;
    }
    last_ = std::move(image);
    last_h_ = h;
  }

  double signal(double t) {
    apps::NetworkInputs in;
    in.symbols = {{"B", 1}};
    in.numbers["t"] = {float(t)};
    return t > 0 ? network_.run("signal", in, true)[0] : 1;
  }

  // Predicts the image without noise, and adds the same noise at the next time.
  void by_noise(std::vector<float>& x, const std::vector<float>& noise, double from, double to) {
    const double here = signal(from), there = signal(to);
    for (size_t i = 0; i < x.size(); ++i) {
      const double image = (x[i] - std::sqrt(1 - here) * noise[i]) / std::sqrt(here);
      x[i] = float(std::sqrt(there) * image + std::sqrt(1 - there) * noise[i]);
    }
  }

  apps::Network& network_;
  Sampling how_;
  const SamplingWatch& watch_;
  apps::NetworkInputs inputs_;
  std::vector<float> last_;
  double last_h_ = 0;
};

}  // namespace

apps::NetworkInputs diffusion_batch(const apps::Images& images, const apps::Network& network, int64_t step,
                                    int64_t batch) {
  apps::require_images_fit(images, network);
  const std::vector<int64_t> which = apps::batch_of_passes(images.count, network.settings().seed, step, batch);
  apps::NetworkInputs out;
  out.symbols = {{"B", batch}};
  out.numbers["images"] = apps::framed(images, which, network.config("size"));
  for (const int64_t image : which) out.integers["shown"].push_back(images.labels[image]);
  return out;
}

DiffusionSampler diffusion_sampler(const std::string& name) {
  if (name == "euler") return DiffusionSampler::euler;
  if (name == "heun") return DiffusionSampler::heun;
  if (name == "dpm2") return DiffusionSampler::dpm2;
  if (name == "ddim") return DiffusionSampler::ddim;
  throw usage_error("there is no sampler '{}'; there are euler, heun, dpm2 and ddim", name);
}

bool gives_noise(const apps::Network& network) {
  return network.has_config("noise_steps") && network.config("noise_steps") > 0;
}

DiffusionSampler usual_sampler(const apps::Network& network) {
  return gives_noise(network) ? DiffusionSampler::ddim : DiffusionSampler::euler;
}

std::vector<float> sampled(apps::Network& network, const std::vector<int32_t>& labels, const Sampling& how,
                           const std::atomic<bool>* stop, const std::function<void(int64_t)>& told,
                           const SamplingWatch& watch) {
  const int64_t size = network.config("size"), each = size * size * network.config("channels"),
                classes = network.config("classes");
  for (const int32_t label : labels)
    if (label < 0 || label > classes)
      throw user_error("label {}: the family has 0 to {}, and {} for none", label, classes - 1, classes);
  if (gives_noise(network) != (how.sampler == DiffusionSampler::ddim))
    throw usage_error("the sampler ddim is for families that give the noise, and for no others");
  std::vector<float> out;
  for (int64_t first = 0; first < std::ssize(labels) && !(stop && *stop); first += how.batch) {
    const int64_t count = std::min(how.batch, std::ssize(labels) - first);
    std::vector<int32_t> some(how.batch, classes);  // the last batch is padded, so that one program serves all
    std::copy_n(labels.begin() + first, count, some.begin());
    std::vector<float> noise;
    for (int64_t i = 0; i < how.batch; ++i) {
      Draws draws(how.seed, kNoiseDraws, first + i);
      for (int64_t k = 0; k < each; ++k) noise.push_back(draws.normal());
    }
    const std::vector<float> images = Walk(network, some, how, watch).run(std::move(noise), stop);
    if (stop && *stop) break;
    out.insert(out.end(), images.begin(), images.begin() + count * each);
    if (told) told(first + count);
  }
  return out;
}

}  // namespace lumen::diffuse
