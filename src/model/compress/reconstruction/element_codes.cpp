#include "model/compress/reconstruction/element_codes.h"

#include <bit>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "number/codec/codec.h"

namespace lumen::model::compress {
namespace {

constexpr int kProbes = 12;   // records of random bits
constexpr int kMostBits = 8;  // of a code

void find_read(const RoutineExpr& e, std::set<int>* fields) {
  if (e.kind == RoutineExpr::Kind::field) fields->insert(e.slot);
  for (const RoutineExpr& a : e.args) find_read(a, fields);
}
void find_read(const std::vector<RoutineStmt>& body, std::set<int>* fields) {
  for (const RoutineStmt& s : body) {
    for (const RoutineExpr* e : {&s.value, &s.index, &s.from, &s.to}) find_read(*e, fields);
    find_read(s.body, fields);
    find_read(s.otherwise, fields);
  }
}

// A blob of one row with one block, with random bits.
class Probe {
 public:
  Probe(const Format& f, int field) : f_(f), layout_(f.fields[field].layout), blob_(blob_layout(f, 1, f.block).total) {}

  void draw(std::mt19937& random) {
    for (uint8_t& b : blob_) b = random() & 0xff;
  }
  void set(int64_t place, uint64_t code) { layout_.write(blob_.data(), place, code); }
  // As bits, so that NaN equals itself.
  std::vector<uint32_t> decoded() const {
    const std::vector<float> values = decode(f_, blob_, 1, f_.block);
    std::vector<uint32_t> out(values.size());
    std::memcpy(out.data(), values.data(), values.size() * sizeof(float));
    return out;
  }
  std::vector<uint32_t> decoded_all(uint64_t code) {
    for (int64_t j = 0; j < f_.block; ++j) set(j, code);
    return decoded();
  }

 private:
  const Format& f_;
  const Layout& layout_;
  std::vector<uint8_t> blob_;
};

// Half of a block's elements get one code and half another, by a bit of their position: each must decode as it does
// where all have its code.
bool stand_alone(const Format& f, int field, int bits) {
  std::mt19937 random(1);
  Probe probe(f, field);
  for (int bit = 0; int64_t{1} << bit < f.block; ++bit) {
    probe.draw(random);
    const uint64_t most = (uint64_t{1} << bits) - 1, a = random() & most, b = random() & most;
    const std::vector<uint32_t> of_a = probe.decoded_all(a), of_b = probe.decoded_all(b);
    for (int64_t j = 0; j < f.block; ++j) probe.set(j, j >> bit & 1 ? a : b);
    const std::vector<uint32_t> mixed = probe.decoded();
    for (int64_t j = 0; j < f.block; ++j)
      if (mixed[j] != (j >> bit & 1 ? of_a : of_b)[j]) return false;
  }
  return true;
}

void find_groups(const Format& f, ElementCodes* out) {
  std::mt19937 random(2);
  Probe probe(f, out->field);
  std::vector<std::vector<uint32_t>> seen(f.block);
  const int codes = 1 << out->bits, some = std::min(codes, 8);
  for (int k = 0; k < kProbes; ++k) {
    probe.draw(random);
    for (int c = 0; c < some; ++c) {
      const std::vector<uint32_t> values = probe.decoded_all(c + (codes - some) * (k % 2));
      for (int64_t j = 0; j < f.block; ++j) seen[j].push_back(values[j]);
    }
  }
  std::map<std::vector<uint32_t>, int32_t> numbers;
  std::vector<int32_t> sizes;
  for (int64_t j = 0; j < f.block; ++j) {
    const auto [at, fresh] = numbers.emplace(std::move(seen[j]), numbers.size());
    if (fresh) sizes.push_back(0);
    out->group.push_back(at->second);
    out->index.push_back(sizes[at->second]++);
  }
  out->groups = sizes.size();
}

}  // namespace

int64_t ElementCodes::span(const Format& f, int64_t columns) const {
  if (!group.empty()) return f.block;
  return f.tile_columns > 0 ? std::min(f.tile_columns, columns) : columns;
}

bool find_element_codes(const Format& f, ElementCodes* out, std::string* why) {
  const auto refuse = [&](std::string text) {
    *why = std::move(text);
    return false;
  };
  if (!f.encodes()) return refuse("it can only be read");
  std::set<int> read;
  find_read(f.decode.body, &read);
  find_read(f.decode.result, &read);
  bool fields_of_blocks = false;
  for (int i = 0; i < std::ssize(f.fields); ++i) {
    if (!read.contains(i))
      return refuse(fmt::format("its field '{}' follows from others, and values moved alone would leave it wrong",
                                f.fields[i].name));
    fields_of_blocks |= i != f.code_field && f.fields[i].level == Level::block;
  }
  const std::string shared = "each of its codes is for several values, so that no value can be changed alone";
  if (f.code_field < 0) return refuse(shared);
  const Field& field = f.fields[f.code_field];
  if (field.type.bits > kMostBits)
    return refuse(fmt::format("its codes have {} bits, which leaves nothing to learn", field.type.bits));
  if (field.count != f.block || !stand_alone(f, f.code_field, field.type.bits)) return refuse(shared);
  *out = {};
  out->field = f.code_field;
  out->bits = field.type.bits;
  if (fields_of_blocks || f.block > 1) find_groups(f, out);
  return true;
}

}  // namespace lumen::model::compress
