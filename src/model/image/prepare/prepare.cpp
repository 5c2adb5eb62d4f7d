#include "model/image/prepare/prepare.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/structured/json.h"
#include "base/threads/team.h"

namespace lumen::model::image {
namespace {

using nlohmann::json;

constexpr int64_t kMostSide = int64_t{1} << 16, kMostPixels = int64_t{1} << 26;  // of a prepared picture
constexpr double kMostRatio = 200;

// Members of a preprocessor's config. Null and missing members leave the defaults.
struct Members {
  const json& object;
  const std::string& where;

  const json* find(const char* name) const {
    const auto at = object.find(name);
    return at == object.end() || at->is_null() ? nullptr : &*at;
  }
  [[noreturn]] void refuse(const char* name) const {
    throw user_error("{}: \"{}\" has a value that cannot be used here", where, name);
  }
  void take(const char* name, bool& out) const {
    if (const json* value = find(name)) {
      if (!value->is_boolean()) refuse(name);
      out = value->get<bool>();
    }
  }
  void take(const char* name, int64_t& out, int64_t most = kMostPixels) const {
    if (const json* value = find(name)) {
      if (!value->is_number()) refuse(name);
      const auto number = value->get<double>();
      if (!(number >= 1) || number != std::floor(number)) refuse(name);
      out = int64_t(std::min(number, double(most)));  // some files give 9e18 for no limit
    }
  }
  void take(const char* name, std::array<double, 3>& out) const {
    const json* value = find(name);
    if (!value) return;
    const auto is_number = [](const json& n) { return n.is_number(); };
    if (!value->is_array() || value->size() != out.size() || !std::ranges::all_of(*value, is_number)) refuse(name);
    for (size_t c = 0; c < out.size(); ++c) out[c] = (*value)[c].get<double>();
  }
};

void take_size(const Members& members, Preparation& how) {
  const json* size = members.find("size");
  if (size && size->is_number()) {
    members.take("size", how.height, kMostSide);
    how.width = how.longest = how.height;
  } else if (size && size->is_object()) {
    const Members sides{*size, members.where};
    sides.take("height", how.height, kMostSide);
    sides.take("width", how.width, kMostSide);
    if (how.sizing == Sizing::by_area) {
      sides.take("shortest_edge", how.least_pixels);
      sides.take("longest_edge", how.most_pixels);
      sides.take("min_pixels", how.least_pixels);
      sides.take("max_pixels", how.most_pixels);
    } else {
      sides.take("longest_edge", how.longest, kMostSide);
    }
  } else if (size) {
    members.refuse("size");
  }
  members.take("min_pixels", how.least_pixels);
  members.take("max_pixels", how.most_pixels);
}

void take_filter(const Members& members, Preparation& how) {
  int64_t number = 0;
  if (!members.find("resample")) return;
  members.take("resample", number);
  if (number == 2)
    how.filter = Filter::bilinear;
  else if (number == 3)
    how.filter = Filter::bicubic;
  else
    members.refuse("resample");
}

int64_t to_multiple(double side, int64_t of) {
  return int64_t(std::nearbyint(side)) * of;
}

std::array<int64_t, 2> size_by_area(const Preparation& how, double height, double width) {
  const int64_t step = how.patch * how.merge;
  const auto sides = double(step), pixels = height * width;
  int64_t tall = to_multiple(height / sides, step), wide = to_multiple(width / sides, step);
  if (tall * wide > how.most_pixels) {
    const double by = std::sqrt(pixels / double(how.most_pixels));
    tall = std::max(step, int64_t(std::floor(height / by / sides)) * step);
    wide = std::max(step, int64_t(std::floor(width / by / sides)) * step);
  } else if (tall * wide < how.least_pixels) {
    const double by = std::sqrt(double(how.least_pixels) / pixels);
    tall = int64_t(std::ceil(height * by / sides)) * step;
    wide = int64_t(std::ceil(width * by / sides)) * step;
  }
  return {tall, wide};
}

std::array<int64_t, 2> size_by_longest(const Preparation& how, double height, double width) {
  const int64_t step = how.patch * how.merge;
  const double by = std::max(1.0, std::max(height, width) / double(how.longest));
  const auto side = [&](double pixels) {
    const auto scaled = int64_t(by > 1 ? std::floor(pixels / by) : pixels);
    return std::max(step, (scaled + step - 1) / step * step);
  };
  return {side(height), side(width)};
}

}  // namespace

Preparation read_preparation(Preparation how, const std::string& text, const std::string& where) {
  const json whole = parse_json(text, where, 64);
  if (!whole.is_object()) throw user_error("{}: not a JSON object", where);
  const auto inner = whole.find("image_processor");
  const json& object = inner != whole.end() && inner->is_object() ? *inner : whole;
  const Members members{object, where};
  take_size(members, how);
  take_filter(members, how);
  members.take("do_resize", how.resizes);
  members.take("do_rescale", how.rescales);
  members.take("do_normalize", how.normalizes);
  if (const json* factor = members.find("rescale_factor")) {
    if (!factor->is_number() || !(factor->get<double>() > 0)) members.refuse("rescale_factor");
    how.factor = factor->get<double>();
  }
  members.take("image_mean", how.mean);
  members.take("image_std", how.deviation);
  if (std::ranges::any_of(how.deviation, [](double d) { return d == 0; })) members.refuse("image_std");
  return how;
}

std::array<int64_t, 2> prepared_size(const Preparation& how, int64_t height, int64_t width, const std::string& name) {
  const auto tall = double(height), wide = double(width);
  if (std::max(tall, wide) / std::min(tall, wide) > kMostRatio)
    throw user_error("{}: {} x {} pixels: a side may be {} times the other at most", name, width, height, kMostRatio);
  const int64_t step = how.patch * how.merge;
  std::array<int64_t, 2> size = {height, width};
  if (how.sizing == Sizing::square)
    size = {how.height, how.width};
  else if (how.resizes)
    size = how.sizing == Sizing::by_area ? size_by_area(how, tall, wide) : size_by_longest(how, tall, wide);
  if (size[0] < 1 || size[1] < 1 || size[0] % step != 0 || size[1] % step != 0 || size[0] > kMostSide ||
      size[1] > kMostSide || size[0] * size[1] > kMostPixels)
    throw user_error("{}: pictures of {} x {} pixels cannot be cut into squares of {}", name, size[1], size[0], step);
  return size;
}

Patches prepare(const Preparation& how, const Image& image, const std::string& name) {
  const auto [height, width] = prepared_size(how, image.height, image.width, name);
  const Image scaled = resized(image, width, height, how.filter);
  Patches out{height / how.patch, width / how.patch};
  const int64_t each = 3 * how.patch * how.patch, columns = out.columns / how.merge, square = how.merge * how.merge;
  out.values.resize(out.count() * each);
  // One factor for both steps, in single precision.
  std::array<float, 3> less = {}, over = {1, 1, 1};
  const double unit = how.rescales ? how.factor : 1;
  for (size_t c = 0; c < 3 && how.normalizes; ++c) {
    less[c] = float(how.mean[c]) * float(1.0 / unit);
    over[c] = float(how.deviation[c]) * float(1.0 / unit);
  }
  const auto number = [&](uint8_t byte, size_t c) {
    const float value = byte;
    if (how.normalizes) return (value - less[c]) / over[c];
    return how.rescales ? value * float(how.factor) : value;
  };
  parallel_for(0, out.count(), {.is_worth = std::ssize(out.values) > 65536}, [&](int64_t p) {
    const int64_t at = p / square, inside = p % square;
    const int64_t top = (at / columns * how.merge + inside / how.merge) * how.patch;
    const int64_t left = (at % columns * how.merge + inside % how.merge) * how.patch;
    float* to = out.values.data() + p * each;
    for (size_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < how.patch; ++y)
        for (int64_t x = 0; x < how.patch; ++x) *to++ = number(scaled.rgb[((top + y) * width + left + x) * 3 + c], c);
  });
  return out;
}

}  // namespace lumen::model::image
