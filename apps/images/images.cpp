#include "apps/images/images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "apps/draws/draws.h"
#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "model/data/reader/unpack.h"

namespace lumen::apps {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kOrderDraws = 0x6f72646572, kColorDraws = 0x636f6c6f7273;
constexpr uint64_t kLargestFile = uint64_t{4} << 30;
constexpr int64_t kLargestSide = 4096, kMostClasses = 100'000;
constexpr uint8_t kBytes = 8;  // IDX's name of the type
constexpr size_t kWord = 4;

uint32_t word_at(std::string_view text, size_t at) {
  uint32_t out = 0;
  for (size_t i = 0; i < kWord; ++i) out = out << 8 | uint8_t(text[at + i]);
  return out;
}

struct Idx {
  std::vector<int64_t> extents;
  std::string_view bytes;
};

Idx parse(std::string_view text, const std::string& name) {
  if (text.size() < kWord || text[0] != 0 || text[1] != 0) throw user_error("{} is no IDX file", name);
  if (text[2] != kBytes) throw user_error("{} holds numbers of type {}, not bytes (8)", name, int{uint8_t(text[2])});
  const size_t axes = uint8_t(text[3]), head = kWord * (axes + 1);
  if (axes < 1 || axes > 4 || text.size() < head) throw user_error("{}: {} axes, or it ends in its head", name, axes);
  Idx out;
  uint64_t count = 1;
  for (size_t d = 0; d < axes; ++d) {
    out.extents.push_back(word_at(text, kWord * (d + 1)));
    if (__builtin_mul_overflow(count, uint64_t(out.extents.back()), &count) || count > kLargestFile)
      throw user_error("{} claims more than {} bytes", name, kLargestFile);
  }
  out.bytes = text.substr(head);
  if (out.bytes.size() != count) throw user_error("{} claims {} bytes, but has {}", name, count, out.bytes.size());
  return out;
}

std::string read_packed(const fs::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const fs::path plain = folder / name, packed = folder / (name + ".gz");
    if (fs::exists(plain)) return read_file(plain, kLargestFile);
    if (fs::exists(packed)) return model::data::gunzip(read_file(packed, kLargestFile), packed.string(), kLargestFile);
  }
  throw Error(Exit::user, fmt::format("{} holds no {} (.gz)", folder.string(), names.front()),
              "a folder of IDX files, as MNIST comes; `lumen diffuse data` makes one up");
}

// How much of a shape's kind is at a place, from its middle in units of its size.
bool is_inside(int kind, double x, double y) {
  const double far = std::hypot(x, y), most = std::max(std::fabs(x), std::fabs(y)),
               least = std::min(std::fabs(x), std::fabs(y));
  constexpr double kInner = 0.55, kArm = 0.3, kSide = 0.85;
  switch (kind) {
    case 0:
      return far <= 1;
    case 1:
      return most <= kSide;
    case 2:
      return most <= 1 && least <= kArm;
    default:
      return far <= 1 && far >= kInner;
  }
}

// The order that the seed gives to a pass.
std::vector<int64_t> pass_order(int64_t count, uint64_t seed, int64_t pass) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  Draws draws(seed, kOrderDraws, pass);
  for (int64_t i = count - 1; i > 0; --i) std::swap(order[i], order[draws.below(i + 1)]);
  return order;
}

}  // namespace

int64_t Images::classes() const {
  return labels.empty() ? 0 : *std::max_element(labels.begin(), labels.end()) + 1;
}

Images parse_idx(std::string_view images, std::string_view labels, const std::string& name) {
  const Idx i = parse(images, name + " images"), l = parse(labels, name + " labels");
  if (i.extents.size() < 3 || l.extents.size() != 1)
    throw user_error("{}: images have {} axes and labels {}, not 3 or 4, and 1", name, i.extents.size(),
                     l.extents.size());
  Images out{i.extents[0], i.extents[1], i.extents[2], i.extents.size() == 4 ? i.extents[3] : 1, {}, {}};
  if (out.count < 1 || out.count != l.extents[0])
    throw user_error("{}: {} images and {} labels", name, out.count, l.extents[0]);
  if (out.height < 1 || out.width < 1 || out.height > kLargestSide || out.width > kLargestSide)
    throw user_error("{}: images of {} x {}", name, out.height, out.width);
  if (out.channels != 1 && out.channels != 3) throw user_error("{}: {} channels, not 1 or 3", name, out.channels);
  out.pixels.assign(i.bytes.begin(), i.bytes.end());
  for (const char c : l.bytes) out.labels.push_back(uint8_t(c));
  if (out.classes() > kMostClasses) throw user_error("{}: {} classes", name, out.classes());
  return out;
}

Images read_images(const fs::path& folder, const std::string& part) {
  const std::string images = read_packed(folder, {part + "-images-idx3-ubyte", part + "-images-idx4-ubyte"});
  return parse_idx(images, read_packed(folder, {part + "-labels-idx1-ubyte"}), (folder / part).string());
}

void append_word(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += char(value >> shift);
}

std::pair<std::string, std::string> idx_bytes(const Images& images) {
  std::string a{0, 0, kBytes, char(images.channels == 1 ? 3 : 4)}, b{0, 0, kBytes, 1};
  for (const int64_t extent : {images.count, images.height, images.width}) append_word(a, extent);
  if (images.channels != 1) append_word(a, images.channels);
  append_word(b, images.count);
  a.append(images.pixels.begin(), images.pixels.end());
  b.append(images.labels.begin(), images.labels.end());
  return {a, b};
}

Images made_up_images(int64_t count, int64_t size, uint64_t seed) {
  constexpr int kKinds = 4, kParts = 4;  // kinds of shapes; parts of a pixel's side that are looked at
  Images out{count, size, size, 1, {}, {}};
  for (int64_t i = 0; i < count; ++i) {
    Draws draws(seed, i);
    const int kind = draws.below(kKinds);
    const double radius = size * (0.2 + 0.15 * draws.uniform()), room = size - 2 * radius;
    const double left = radius + room * draws.uniform(), top = radius + room * draws.uniform();
    const double shade = 160 + 95 * draws.uniform();
    for (int64_t y = 0; y < size; ++y)
      for (int64_t x = 0; x < size; ++x) {
        int inside = 0;
        for (int v = 0; v < kParts; ++v)
          for (int u = 0; u < kParts; ++u)
            inside +=
                is_inside(kind, (x + (u + 0.5) / kParts - left) / radius, (y + (v + 0.5) / kParts - top) / radius);
        out.pixels.push_back(std::lround(shade * inside / (kParts * kParts)));
      }
    out.labels.push_back(kind);
  }
  return out;
}

Images with_colors(const Images& gray, uint64_t seed) {
  constexpr int kChannels = 3;
  constexpr double kNoise = 12;  // deviation, of 255
  LUMEN_CHECK(gray.channels == 1, "{} channels have colors", gray.channels);
  Images out{gray.count, gray.height, gray.width, kChannels, {}, gray.labels};
  out.pixels.reserve(gray.pixels.size() * kChannels);
  for (int64_t i = 0; i < gray.count; ++i) {
    Draws draws(seed, kColorDraws, i);
    std::array<std::array<double, kChannels>, 3> colors;  // of what is bright, of the left end and of the right one
    for (auto& color : colors)
      for (double& part : color) part = 255 * draws.uniform();
    for (int64_t y = 0; y < gray.height; ++y)
      for (int64_t x = 0; x < gray.width; ++x) {
        const double share = gray.pixels[(i * gray.height + y) * gray.width + x] / 255.0,
                     along = double(x) / gray.width;
        for (int c = 0; c < kChannels; ++c) {
          const double behind = colors[1][c] + along * (colors[2][c] - colors[1][c]);
          const double mixed = behind + share * (colors[0][c] - behind) + kNoise * draws.normal();
          out.pixels.push_back(std::lround(std::clamp(mixed, 0.0, 255.0)));
        }
      }
  }
  return out;
}

std::vector<float> framed(const Images& images, std::span<const int64_t> which, int64_t side) {
  LUMEN_CHECK(images.height <= side && images.width <= side, "images of {} x {} in {}", images.height, images.width,
              side);
  const int64_t left = (side - images.width) / 2, top = (side - images.height) / 2, channels = images.channels,
                row = images.width * channels;
  std::vector<float> out(which.size() * side * side * channels, -1);
  for (int64_t i = 0; i < std::ssize(which); ++i)
    for (int64_t y = 0; y < images.height; ++y)
      for (int64_t x = 0; x < row; ++x)
        out[((i * side + top + y) * side + left) * channels + x] =
            images.pixels[(which[i] * images.height + y) * row + x] / 127.5F - 1;
  return out;
}

std::vector<int64_t> batch_of_passes(int64_t count, uint64_t seed, int64_t step, int64_t batch) {
  std::vector<int64_t> out, order;
  int64_t of_pass = -1;
  for (int64_t at = step * batch; at < (step + 1) * batch; ++at) {
    if (of_pass != at / count) {
      of_pass = at / count;
      order = pass_order(count, seed, of_pass);
    }
    out.push_back(order[at % count]);
  }
  return out;
}

}  // namespace lumen::apps
