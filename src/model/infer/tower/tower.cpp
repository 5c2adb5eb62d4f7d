#include "model/infer/tower/tower.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/sealed/seal.h"
#include "model/arch/function.h"
#include "model/infer/session/finite.h"
#include "run/engine/engine.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kLeastPatches = 64;
constexpr size_t kMostSteps = 4;  // compiled at once

int64_t number_or(const arch::Model& tower, const char* key, int64_t otherwise) {
  return tower.config.contains(key) ? tower.integer(key) : otherwise;
}

// At least `count`: 4, 5, 6, 7, 8, 10, 12, 14, 16, ..
int64_t few_sizes(int64_t count) {
  int64_t step = 1;
  while (8 * step < count) step *= 2;
  return (count + step - 1) / step * step;
}

}  // namespace

image::Preparation preparation_of(const arch::Model& tower) {
  image::Preparation how;
  how.patch = tower.integer("patch");
  how.merge = tower.integer("merge");
  // A family's choices are in the order of the enum's.
  how.sizing = image::Sizing(tower.integer("sizing"));
  how.least_pixels = number_or(tower, "least_pixels", 0);
  how.most_pixels = number_or(tower, "most_pixels", 0);
  for (const auto& [name, text] : tower.files) return read_preparation(how, text, name);
  return how;
}

int64_t patches_of_step(int64_t count, int64_t square) {
  return few_sizes(std::max(count, kLeastPatches) / square + (count % square != 0 ? 1 : 0)) * square;
}

PatchPlaces patch_places(const image::Patches& patches, const image::Preparation& how, int64_t window) {
  const int64_t merge = how.merge, square = merge * merge, count = patches.count();
  PatchPlaces out;
  out.patches = patches_of_step(count, square);
  std::vector<int32_t> lines(out.patches, 0), columns(out.patches, 0);
  const int64_t squares = patches.columns / merge;
  for (int64_t p = 0; p < count; ++p) {
    lines[p] = int32_t(p / square / squares * merge + p % square / merge);
    columns[p] = int32_t(p / square % squares * merge + p % merge);
  }
  out.inputs["count"] = {int32_t(count)};
  out.inputs["grid"] = {int32_t(patches.lines), int32_t(patches.columns)};
  if (window > 0) {
    // Windows hold whole squares.
    const int64_t side = std::max<int64_t>(1, window / merge / how.patch) * merge;
    const int64_t across = (patches.columns + side - 1) / side, down = (patches.lines + side - 1) / side;
    out.most_in_window = side * side;
    out.windows = few_sizes(across * down);
    std::vector<int32_t> places(out.windows * out.most_in_window, 0), sizes(out.windows, 0), back(out.patches, 0);
    for (int64_t p = 0; p < count; ++p) {
      const int64_t w = lines[p] / side * across + columns[p] / side;
      const int64_t at = w * out.most_in_window + sizes[w]++;
      places[at] = int32_t(p);
      back[p] = int32_t(at);
    }
    for (int32_t& size : sizes) size = std::max(size, 1);  // of windows that are padding
    out.inputs["window_places"] = std::move(places);
    out.inputs["window_sizes"] = std::move(sizes);
    out.inputs["back"] = std::move(back);
  }
  out.inputs["lines"] = std::move(lines);
  out.inputs["columns"] = std::move(columns);
  return out;
}

Tower::Tower(run::Engine& engine, arch::Model tower, bool exact)
    : model_(std::move(tower)),
      text_(arch::picture_text(*model_.family)),
      how_(preparation_of(model_)),
      loaded_(engine, model_),
      graph_(loaded_.function("pictures")),
      exact_(exact) {}

Tower::Step& Tower::step(const PatchPlaces& places) {
  for (Step& s : steps_)
    if (s.patches == places.patches && s.windows == places.windows) return s;
  if (steps_.size() == kMostSteps) steps_.pop_front();
  run::Engine& engine = loaded_.engine();
  run::CompileOptions options;
  options.assignments = stored_formats(loaded_.model(), graph_);
  options.symbols = {
      {"N", places.patches / (how_.merge * how_.merge)}, {"W", places.windows}, {"S", places.most_in_window}};
  options.exact = exact_;
  Step s{places.patches, places.windows, engine.compile(graph_, options), {}};
  engine.require_memory(fmt::format("'{}'", loaded_.model().name),
                        {{fmt::format("values of {} patches", places.patches), s.program->arena_bytes()}},
                        "make the picture smaller");
  for (const std::string& name : s.program->input_names()) {
    const auto weight = loaded_.weights().find(name);
    run::DeviceTensorRef tensor = weight != loaded_.weights().end() ? weight->second : nullptr;
    if (!tensor)
      tensor = s.in[name] = std::make_shared<run::DeviceTensor>(engine.device(), s.program->input_type(name));
    s.program->bind(name, tensor);
  }
  return steps_.emplace_back(std::move(s));
}

int64_t Tower::rows_of(int64_t height, int64_t width, const std::string& name) const {
  const auto [tall, wide] = prepared_size(how_, height, width, name);
  const int64_t square = how_.patch * how_.merge;
  return (tall / square) * (wide / square);
}

PreparedPicture Tower::prepared(const image::Image& given, const std::string& name) const {
  PreparedPicture out;
  out.patches = prepare(how_, given, name);
  out.lines = out.patches.lines / how_.merge;
  out.columns = out.patches.columns / how_.merge;
  const std::string_view content(reinterpret_cast<const char*>(out.patches.values.data()),
                                 out.patches.values.size() * sizeof(float));
  const std::string about = fmt::format("{} {} {}", out.patches.lines, out.patches.columns, fingerprint(content));
  out.hash = hash_text(about);
  return out;
}

std::vector<float> Tower::rows(const PreparedPicture& picture, int64_t width) {
  const PatchPlaces places = patch_places(picture.patches, how_, number_or(loaded_.model(), "window", 0));
  Step& s = step(places);
  std::vector<float> values = picture.patches.values;
  values.resize(values.size() / picture.patches.count() * places.patches, 0.0F);
  for (const auto& [input, tensor] : s.in) {
    if (input == "patches") {
      tensor->upload(values.data(), tensor->bytes());
      continue;
    }
    const auto found = places.inputs.find(input);
    if (found == places.inputs.end())
      throw user_error("the function 'pictures' of the family '{}' has the unknown input '{}'",
                       loaded_.model().family->name(), input);
    LUMEN_CHECK(std::cmp_equal(found->second.size() * sizeof(int32_t), tensor->bytes()));
    tensor->upload(found->second.data(), tensor->bytes());
  }
  s.program->run();
  const run::DeviceTensorRef result = s.program->result(arch::kResult);
  std::vector<float> all(result->bytes() / sizeof(float));
  result->download(all.data(), result->bytes());
  const int64_t each = std::ssize(all) / (places.patches / (how_.merge * how_.merge));
  if (each != width)
    throw Error(
        Exit::user,
        fmt::format("'{}' makes rows of {} numbers, but the model reads rows of {}", loaded_.model().name, each, width),
        "the tower belongs to another model");
  all.resize(picture.lines * picture.columns * each);
  require_finite(loaded_, all, "rows of a picture");
  return all;
}

PictureRef Tower::hold(const PreparedPicture& picture, PictureBook& book, int64_t width) {
  return book.add({picture.hash, picture.lines, picture.columns, rows(picture, width), {}});
}

PictureRef Tower::see(const image::Image& given, const std::string& name, PictureBook& book, int64_t width) {
  return hold(prepared(given, name), book, width);
}

}  // namespace lumen::model::infer
