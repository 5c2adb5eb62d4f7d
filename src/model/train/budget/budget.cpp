#include "model/train/budget/budget.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "model/train/offload/offload.h"
#include "model/train/ranks/ranks.h"
#include "run/device/available.h"
#include "run/device/outside/outside.h"
#include "run/device/require.h"

namespace lumen::model::train {
namespace {

constexpr double kForwardShare = 1.0 / 3;  // of the products of a step

// Bytes that a step moves to and from the outside.
struct Traffic {
  int64_t beside_compute = 0, alone = 0;  // while layers are computed, and while updates are
};

Traffic traffic_of(const TrainingForecast::Visiting& f, const recipe::Recipe& recipe, int shares) {
  const auto twice = [](int64_t bytes) { return run::saturating_product(bytes, 2); };
  Traffic out;
  out.alone = twice(f.states);
  if (!f.by_layers) return out;
  // Parameters are loaded in each pass; gradients are stored, and loaded again where batches are added; updates read
  // and write both. Activations kept between the passes are stored and loaded.
  const int64_t batches = recipe.accumulate / shares;
  const int64_t of_batch = run::saturating_sum(run::saturating_sum(twice(f.parameters), f.gradients), twice(f.kept));
  out.beside_compute = run::saturating_sum(run::saturating_product(of_batch, batches),
                                           run::saturating_product(f.gradients, batches - 1));
  out.alone = run::saturating_sum(out.alone, run::saturating_sum(twice(f.parameters), f.gradients));
  return out;
}

class Chooser {
 public:
  Chooser(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe, BatchForm form,
          bool weights_are_there, const arch::Model* teacher, int ranks)
      : engine_(engine),
        model_(model),
        recipe_(recipe),
        form_(form),
        weights_are_there_(weights_are_there),
        teacher_(teacher),
        ranks_(ranks) {}

  // A lower bound of forecast(), without planning a step.
  const TrainingForecast& certain(const BudgetChoice& choice) { return look_at(choice).outline->certain(); }

  const TrainingForecast& forecast(const BudgetChoice& choice) {
    Looked& looked = look_at(choice);
    if (!looked.forecast) looked.forecast = looked.outline->forecast(weights_are_there_);
    return *looked.forecast;
  }

  // The recipe of one rank.
  recipe::Recipe with(const BudgetChoice& choice) const {
    recipe::Recipe r = recipe_;
    r.recompute = choice.recompute;
    r.offload = choice.offload;
    return recipe_of_rank(r, ranks_);
  }

  // Additional seconds per step, compared with `whole`, a step that holds everything.
  double seconds(const BudgetChoice& choice, const TrainingForecast& whole, const BudgetRates& rates) {
    const recipe::Recipe r = with(choice);
    const int shares = ranks_ / r.tensor_parallel;
    // Ranks share a step's batches and thus its operations.
    const double compute = whole.operations / shares / rates.operations;
    const TrainingForecast::Visiting& f = certain(choice).visiting;
    const Traffic traffic = traffic_of(f, r, shares);
    double extra = traffic.alone / rates.outside;
    if (f.by_layers) {
      const double again = compute * (f.computes_again ? 1 + kForwardShare : 1) +
                           (choice.recompute == "maps" ? whole.values / rates.memory : 0);
      return extra + std::max(again, traffic.beside_compute / rates.outside) - compute;
    }
    // Recomputed maps read and write their values once more; recomputed layers repeat the products of the forward pass.
    if (choice.recompute == "maps") extra += whole.values / rates.memory;
    if (choice.recompute == "layers") extra += compute * kForwardShare;
    return extra;
  }

 private:
  struct Looked {
    std::unique_ptr<TrainingOutline> outline;
    std::optional<TrainingForecast> forecast;
  };

  Looked& look_at(const BudgetChoice& choice) {
    Looked& out = looked_[{choice.recompute, choice.offload}];
    if (!out.outline)
      out.outline = std::make_unique<TrainingOutline>(engine_, model_, with(choice), form_, teacher_, ranks_);
    return out;
  }

  run::Engine& engine_;
  const arch::Model& model_;
  const recipe::Recipe& recipe_;
  BatchForm form_;
  bool weights_are_there_;
  const arch::Model* teacher_;
  int ranks_;
  std::map<std::pair<std::string, std::string>, Looked> looked_;
};

std::string offload_text(const std::string& what, const std::string& place) {
  return place.empty() ? what : what + "=" + place;
}

// The candidates of a recipe, without those that its family or method does not support.
std::vector<BudgetChoice> ways(const recipe::Recipe& recipe, const std::string& place) {
  std::vector<std::string> offloads = {recipe.offload}, recomputed = {recipe.recompute};
  if (recipe.offload.empty()) {
    const std::string moments = offload_text("moments", place), layers = offload_text("layers", place),
                      activations = offload_text("activations", place);
    offloads = {"", moments, activations, activations + "," + moments, layers, layers + "," + activations};
  }
  if (recipe.recompute == "none") recomputed = {"none", "maps", "layers"};
  std::vector<BudgetChoice> out;
  // In steps by layers everything that is not offloaded is recomputed, whatever the recipe's setting.
  for (const std::string& offload : offloads) {
    const recipe::OffloadSettings settings = recipe::offload_settings(offload);
    for (const std::string& recompute : recomputed)
      if (!settings.layers || settings.activations || recompute == recomputed.front())
        out.push_back({recompute, offload});
  }
  return out;
}

std::string name_of(const BudgetChoice& c) {
  return fmt::format("--recompute {}{}{}", c.recompute, c.offload.empty() ? "" : " --offload ", c.offload);
}

std::string table(const std::vector<BudgetChoice>& choices) {
  std::string text;
  for (const BudgetChoice& c : choices)
    if (c.bytes > 0)
      text += fmt::format("\n  {:<56} {:>10} {:>+9.3g} s a step{}", name_of(c),
                          (c.is_least ? "> " : "") + size_text(c.bytes), c.seconds, c.fits ? ", taken" : "");
  return text;
}

}  // namespace

namespace {

// Error when no candidate fits, before anything is measured. Starts with the candidate of the least memory, so that few
// are planned where one fits.
void require_some_fit(Chooser& chooser, const std::vector<BudgetChoice>& all, int64_t limit, const std::string& named,
                      const char* hint) {
  std::string text;
  for (const BudgetChoice& c : std::views::reverse(all)) {
    try {
      int64_t bytes = chooser.certain(c).total();
      const bool is_certain = bytes > limit;
      if (!is_certain) bytes = chooser.forecast(c).total();
      if (bytes <= limit) return;
      text = fmt::format("\n  {:<56} {:>12}", name_of(c), (is_certain ? "> " : "") + size_text(bytes)) + text;
    } catch (const Error&) {
      continue;  // not supported by this recipe and family
    }
  }
  if (!text.empty()) throw Error(Exit::hardware, fmt::format("nothing fits in {}:{}", named, text), hint);
}

}  // namespace

double measure_outside(run::Device& device, const std::string& place) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const auto outside =
      place == "host" ? run::outside_in_memory(device, kBytes) : run::outside_in_file(device, place, kBytes);
  if (!outside) throw usage_error("this device's memory is the host's: nothing is gained there");
  const std::unique_ptr<void, std::function<void(void*)>> memory(device.allocate(kBytes),
                                                                 [&](void* p) { device.release(p); });
  device.synchronize();
  auto* const bytes = reinterpret_cast<std::byte*>(memory.get());
  const Stopwatch watch;
  outside->take(0, bytes, kBytes);
  outside->bring(0, bytes, kBytes);
  return 2.0 * kBytes / std::max(1e-6, watch.seconds());
}

namespace {

std::vector<BudgetChoice> choices_of(Chooser& chooser, const std::vector<BudgetChoice>& all, int64_t limit,
                                     const BudgetRates& rates, bool quick) {
  std::vector<BudgetChoice> out;
  const TrainingForecast& whole = chooser.forecast(all.front());
  for (BudgetChoice c : all) {
    try {
      c.seconds = chooser.seconds(c, whole, rates);
    } catch (const Error&) {
      continue;  // steps by layers are not supported by every recipe and family
    }
    out.push_back(std::move(c));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const BudgetChoice& a, const BudgetChoice& b) { return a.seconds < b.seconds; });
  for (BudgetChoice& c : out) {
    if (quick) {
      c.bytes = chooser.certain(c).total();
      c.is_least = c.bytes > limit;
      if (c.is_least) continue;
    }
    c.bytes = chooser.forecast(c).total();
    c.fits = c.bytes <= limit;
    if (c.fits) break;
  }
  return out;
}

}  // namespace

std::vector<BudgetChoice> budget_choices(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                                         BatchForm form, bool weights_are_there, const arch::Model* teacher,
                                         int64_t limit, const BudgetRates& rates, const std::string& place, int ranks,
                                         bool quick) {
  Chooser chooser(engine, model, recipe, form, weights_are_there, teacher, ranks);
  return choices_of(chooser, ways(recipe, place), limit, rates, quick);
}

MemoryBudget within_limit(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe, BatchForm form,
                          bool weights_are_there, const arch::Model* teacher, const std::function<double()>& ceiling,
                          int ranks) {
  const int64_t limit = run::parse_amount(recipe.memory_limit, "memory.limit");
  run::Device& device = engine.device();
  // The host's memory where the whole run fits in it, else a file.
  const int64_t parameters = run::saturating_product(model.weight_count(), int64_t{sizeof(float)});
  const bool in_host =
      !device.reads_host_memory() && run::saturating_product(parameters, 4) < run::host_room().available;
  const std::string place = in_host ? "host" : "";
  const char* const hint =
      "choose a smaller batch or window, --param-type bf16, moments in a format, or an adapter (--lora)";
  const std::vector<BudgetChoice> all = ways(recipe, place);
  Chooser chooser(engine, model, recipe, form, weights_are_there, teacher, ranks);
  require_some_fit(chooser, all, limit, recipe.memory_limit, hint);
  // A missing folder will be created on the disk of its nearest existing parent.
  std::filesystem::path folder = std::filesystem::absolute(run_folder(recipe));
  while (!std::filesystem::is_directory(folder) && folder.has_relative_path()) folder = folder.parent_path();
  const BudgetRates rates = {ceiling(), engine.measure_memory(),
                             measure_outside(device, in_host ? place : folder.string())};
  const std::vector<BudgetChoice> choices = choices_of(chooser, all, limit, rates, true);
  const auto taken = std::find_if(choices.begin(), choices.end(), [](const BudgetChoice& c) { return c.fits; });
  const std::string text = fmt::format("at {:.3g} operations and {:.3g} GB outside a second:{}", rates.operations,
                                       rates.outside / 1e9, table(choices));
  LUMEN_CHECK(taken != choices.end(), "a fitting plan was found a moment ago");
  MemoryBudget out{recipe, fmt::format("within {} {}", recipe.memory_limit, text)};
  out.recipe.recompute = taken->recompute;
  out.recipe.offload = taken->offload;
  return out;
}

}  // namespace lumen::model::train
