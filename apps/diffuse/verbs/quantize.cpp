// lumen diffuse quantize RUN -o QUANTIZED
#include <algorithm>
#include <cmath>

#include "apps/diffuse/stored.h"
#include "apps/diffuse/verbs/verbs.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/paths/paths.h"
#include "cli/settings/declare.h"
#include "model/file/checkpoint.h"

namespace lumen::cli {
namespace {

struct DiffuseQuantizeFlags {
  std::string run, out, weights, activations, method = "segquant-a";
  CalibrationFlags calibration;
};

std::string widths_text(const std::vector<int64_t>& widths) {
  std::string out;
  for (size_t i = 0; i < widths.size(); ++i) {
    size_t same = 1;
    while (i + same < widths.size() && widths[i + same] == widths[i]) ++same;
    out += (out.empty() ? "" : ", ") + (same > 1 ? fmt::format("{} x {}", same, widths[i]) : fmt::to_string(widths[i]));
    i += same - 1;
  }
  return out;
}

// What was found in the graph, and what was made of it. Channels of a convolution are counted once.
std::string product_line(const diffuse::ProductReads& reads, const diffuse::QuantizedWeight& w) {
  const graph::ProductSite& site = reads.site;
  std::string found = site.is_polar ? "polar" : "";
  const auto add = [&](const char* what, const std::vector<int64_t>& widths) {
    if (!widths.empty()) found += fmt::format("{}{} {}", found.empty() ? "" : ", ", what, widths_text(widths));
  };
  add("rows", site.row_segments);
  std::vector<int64_t> channels = site.column_segments;
  for (int64_t& width : channels) width /= site.places();
  add(site.window.empty() ? "columns" : "channels", channels);
  std::string alphas;
  for (const double a : w.alphas) alphas += fmt::format(" {:.1f}", a);
  return fmt::format("{:<28} {:>4} x {:<4} {}{} product{}, error {:.5f}{}{}\n", site.weight, site.rows, site.columns,
                     site.window.empty() ? "" : fmt::format("window {}, ", fmt::join(site.window, " x ")),
                     w.product.parts.size(), w.product.parts.size() > 1 ? "s" : "", w.error / std::max(w.signal, 1e-30),
                     alphas.empty() ? "" : ", alpha" + alphas, found.empty() ? "" : " | " + found);
}

int diffuse_quantize(const Shared& shared, const DiffuseQuantizeFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  const diffuse::QuantizeMethod method = diffuse::quantize_method(flags.method);
  if (method.has_branch && flags.calibration.rank == 0 && method.name == "svdquant")
    throw Error(Exit::usage, "svdquant has a low-rank branch next to each product", "--rank 8, for example");
  const diffuse::QuantizeFormats formats{library->formats().get(flags.weights),
                                         library->formats().get(flags.activations)};
  if (model::file::latest_checkpoint(flags.out))
    throw Error(Exit::usage, fmt::format("{} holds a run", flags.out), "name another folder");
  run::Engine engine = shared.engine();
  diffuse::DrawingNetwork from = diffuse::load_drawing(engine, *library, flags.run);
  if (!from.change.empty()) throw user_error("{} is quantized already", flags.run);
  catch_interrupts();
  Progress progress;
  std::vector<graph::LeftWeight> left;
  const std::vector<diffuse::ProductReads> reads = flags.calibration.reads(*from.network, 0, progress, left);
  if (interrupted()) return exit_code(Exit::interrupted);
  const diffuse::QuantizedWeights weights =
      diffuse::quantize_network(engine, *from.network, reads, method, formats, flags.calibration.rank,
                                [&](const std::string& weight) { progress.update(weight); });
  progress.finish(fmt::format("{}: {} products", flags.method, weights.size()));
  for (size_t i = 0; i < weights.size(); ++i) put(product_line(reads[i], weights[i]));
  put(in_codes_text(*from.network, reads, weights, left) + "\n");
  if (interrupted()) return exit_code(Exit::interrupted);
  const FolderLock lock(flags.out);
  put(fmt::format("wrote {}\n", diffuse::save_quantized(flags.out, *from.network, weights, flags.method).string()));
  return 0;
}

}  // namespace

void CalibrationFlags::add(CLI::App& app) {
  add_settings(app, "--calibrate", count, "--steps", how.steps, "--guidance", how.guidance, "--rows", rows, "--rank",
               rank, "--batch", how.batch);
}

std::vector<diffuse::ProductReads> CalibrationFlags::reads(apps::Network& network, uint64_t seed, Progress& progress,
                                                           std::vector<graph::LeftWeight>& left) const {
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back(i % network.config("classes"));
  diffuse::Sampling sampling = how;
  sampling.seed = kCalibrationSeed + seed;
  sampling.sampler = diffuse::usual_sampler(network);
  return diffuse::collect_reads(
      network, labels, sampling, {rows, seed + 1}, &interrupted(),
      [&](int64_t done) { progress.update(fmt::format("calibration: {} of {} images", done, count)); }, &left);
}

std::string in_codes_text(const apps::Network& network, std::span<const diffuse::ProductReads> reads,
                          const diffuse::QuantizedWeights& weights, std::span<const graph::LeftWeight> left) {
  int64_t convolutions = 0, numbers = 0, of_codes = 0, bytes = 0, all = 0;
  for (const model::arch::Parameter& p : network.parameters()) all += graph::elements(p.shape).number();
  for (size_t i = 0; i < weights.size(); ++i) {
    const graph::ProductSite& site = reads[i].site;
    convolutions += site.window.empty() ? 0 : 1;
    numbers += site.rows * site.columns;
    for (const auto& [name, input] : weights[i].inputs)
      (input.type.element.format ? of_codes : bytes) += std::ssize(input.bytes);
  }
  std::string out = fmt::format(
      "{} products in codes, {} of them convolutions: {} of {} numbers; codes {:.2f} bits each, scales of activations "
      "and low-rank branches {:.2f}",
      weights.size(), convolutions, numbers, all, 8.0 * double(of_codes) / double(numbers),
      8.0 * double(bytes) / double(numbers));
  for (const graph::LeftWeight& one : left) out += fmt::format("\nf32 stays {}: {}", one.weight, one.why);
  return out;
}

void add_diffuse_quantize(CLI::App& app, Command& command) {
  auto flags = std::make_shared<DiffuseQuantizeFlags>();
  CLI::App* sub = app.add_subcommand("quantize", "Quantize the products of a run by the structure of its graph");
  add_settings(*sub, "run", flags->run, "--out", flags->out, "--weights", flags->weights, "--activations",
               flags->activations, "--method", flags->method);
  flags->calibration.add(*sub);
  sub->footer(
      "Examples:\n"
      "  lumen diffuse quantize run -o small --weights FORMAT --activations FORMAT\n"
      "  lumen diffuse sample small -o images.png");
  set_action(*sub, command, flags, diffuse_quantize);
}

}  // namespace lumen::cli
