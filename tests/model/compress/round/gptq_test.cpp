// Needs: cpu. Rounding with error feedback by second moments: codes published for a small example, those of the
// textbook (elimination from the explicit inverse in f64), and what every format of the library gains on correlated
// activations.
#include "model/compress/round/gptq.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/threads/team.h"
#include "lang/parser.h"
#include "number/codec/codec.h"
#include "number/interpret/engine.h"
#include "number/library/library.h"
#include "tests/model/compress/round/moments.h"

namespace lumen::model::compress {
namespace {

using Floats = std::vector<float>;

FormatRef library_format(const std::string& name) {
  static const FormatLibrary kLibrary = FormatLibrary::builtin();
  return kLibrary.get(name);
}

double trace(const Floats& w, const Floats& values, const Floats& h, int64_t rows, int64_t columns) {
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i)
      for (int64_t j = 0; j < columns; ++j)
        sum += (double{w[place(r, columns, i)]} - values[place(r, columns, i)]) * h[place(i, columns, j)] *
               (double{w[place(r, columns, j)]} - values[place(r, columns, j)]);
  return sum;
}

// Rows of four, codes of three bits between the least and the largest value.
FormatRef three_bits() {
  FormatLibrary library;
  library.add(lang::parse_file(std::make_shared<Source>(Source{"test.lum", R"(format three_bits : block 4 {
    s : f32
    z : u3
    q : u3[4]
    decode(i) = s * (q[i] - z)
    fit(x) {
      let low  = min(0, min(j) x[j])
      let high = max(0, max(j) x[j])
      s = (high - low) / 7
      z = rint(-low / s)
    }
    code(v) = clamp(rint(v / s) + z, 0, 7)
  })"})));
  return library.get("three_bits");
}

std::vector<int> codes_of(const Floats& values) {
  const double s[] = {0.185714285714, 0.211428571429};
  const int z[] = {2, 4};
  std::vector<int> out;
  for (size_t k = 0; k < values.size(); ++k)
    out.push_back(static_cast<int>(std::lround(values[k] / s[k / 4])) + z[k / 4]);
  return out;
}

TEST(Gptq, TheSmallExampleHasItsCodes) {
  const Floats w = {0.9F, -0.4F, 0.31F, 0.77F, -0.2F, 0.65F, -0.83F, 0.12F};
  const Floats x = {1, 2, -1, .5, 0, 1.5, .5, 1, -.5, 1, .25, .5, -1, .5, 2, 0, 1, -.5, 3, -2, 1, 4, -1, 2};  // [4, 6]
  Floats h(16);
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 4; ++j)
      for (int64_t k = 0; k < 6; ++k) h[place(i, 4, j)] += x[place(i, 6, k)] * x[place(j, 6, k)] / 3;
  run::Engine engine(engine_options());
  Gptq gptq(engine);
  Moments straight(engine, h, 4, {});
  EXPECT_NEAR(h[0], 2.833333, 1e-5);
  EXPECT_NEAR(1 / std::sqrt(straight.factor().d[0]), 1.249245, 1e-5);  // the corner of the inverse's factor
  const GptqResult a = gptq.round(three_bits(), w, 2, straight);
  EXPECT_EQ(codes_of(a.values), (std::vector<int>{7, 0, 4, 6, 3, 7, 0, 5}));
  EXPECT_NEAR(a.after, 0.115556, 1e-5);
  EXPECT_NEAR(a.before, 0.115556, 1e-5);
  Moments ordered(engine, h, 4, {.act_order = true});
  EXPECT_EQ(ordered.order(), (std::vector<int32_t>{3, 0, 2, 1}));
  EXPECT_NEAR(1 / std::sqrt(ordered.factor().d[0]), 0.345104, 1e-5);
  const GptqResult b = gptq.round(three_bits(), w, 2, ordered);
  EXPECT_EQ(codes_of(b.values), (std::vector<int>{7, 0, 4, 6, 4, 5, 0, 5}));
  EXPECT_NEAR(b.after, 0.103248, 1e-5);
}

// How the textbook has it: the explicit inverse of H in f64, columns eliminated one by one.
class Textbook {
 public:
  Textbook(const Format& f, const Floats& w, int64_t rows, int64_t columns) : f_(f), w_(w), n_(columns), rows_(rows) {
    engine_ = interpret::engine_of(f);
    whole_ = encode(f, w, rows, columns);
    layout_ = blob_layout(f, rows, columns);
  }

  Floats round(const Floats& h, double damping) const {
    const std::vector<double> passed = shares(h, damping);
    Floats values(w_.size());
    for (int64_t r = 0; r < rows_; ++r) {
      std::vector<double> x(w_.begin() + r * n_, w_.begin() + (r + 1) * n_);
      std::vector<SuppliedField> fields;
      for (int64_t i = 0; i < n_; ++i) {
        const int64_t first = i / f_.block * f_.block;
        Floats block(x.begin() + first, x.begin() + first + f_.block);
        if (i == first) fields = fields_of(block, r);
        const Blob blob = encode(f_, block, 1, f_.block, fields);
        const float y = decode(f_, blob, 1, f_.block)[static_cast<size_t>(i - first)];
        values[place(r, n_, i)] = y;
        const double lost = x[static_cast<size_t>(i)] - y;
        for (int64_t j = i + 1; j < n_; ++j) x[static_cast<size_t>(j)] -= lost * passed[place(i, n_, j)];
      }
    }
    return values;
  }

 private:
  using Blob = std::vector<uint8_t>;

  // What column j takes of an error of column i: the inverse's entries when those before i are eliminated.
  std::vector<double> shares(const Floats& h, double damping) const {
    const auto n = static_cast<size_t>(n_);
    std::vector<double> a(h.begin(), h.end()), inverse(n * n), out(n * n);
    for (size_t i = 0; i < n; ++i) {
      a[i * n + i] += damping * mean_of_diagonal(h, n_);
      inverse[i * n + i] = 1;
    }
    for (size_t k = 0; k < n; ++k) {  // Gauss and Jordan
      const double pivot = a[k * n + k];
      for (size_t j = 0; j < n; ++j) a[k * n + j] /= pivot, inverse[k * n + j] /= pivot;
      for (size_t i = 0; i < n; ++i) {
        const double factor = a[i * n + k];
        if (i == k || factor == 0) continue;
        for (size_t j = 0; j < n; ++j) {
          a[i * n + j] -= factor * a[k * n + j];
          inverse[i * n + j] -= factor * inverse[k * n + j];
        }
      }
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = i + 1; j < n; ++j) out[i * n + j] = inverse[i * n + j] / inverse[i * n + i];
      for (size_t j = i + 1; j < n; ++j)
        for (size_t k = i + 1; k < n; ++k) inverse[j * n + k] -= inverse[j * n + i] * out[i * n + k];
    }
    return out;
  }

  void add(std::vector<SuppliedField>& to, Level level, const uint8_t* record) const {
    std::vector<interpret::Cell> cells = engine_->fresh;
    bool any = false;
    for (const Field& field : f_.fields) any = any || field.level == level;
    if (any) engine_->records[static_cast<size_t>(level)].unpack(record, cells.data());
    for (size_t k = 0; k < f_.fields.size(); ++k) {
      if (f_.fields[k].level != level || static_cast<int>(k) == f_.code_field) continue;
      SuppliedField& s = to.emplace_back();
      s.field = static_cast<int>(k);
      for (int64_t j = 0; j < f_.fields[k].count; ++j) {
        const interpret::Cell& cell = cells[static_cast<size_t>(engine_->plan.field[k] + j)];
        s.values.push_back(f_.fields[k].type.is_float ? cell.real : static_cast<double>(cell.whole));
      }
    }
  }

  std::vector<SuppliedField> fields_of(const Floats& block, int64_t row) const {
    std::vector<SuppliedField> fields;
    add(fields, Level::row, whole_.data() + layout_.section[1] + row * f_.row_bytes);
    add(fields, Level::tensor, whole_.data() + layout_.section[3]);
    const Blob blob = encode(f_, block, 1, f_.block, fields);
    add(fields, Level::block, blob.data());
    return fields;
  }

  const Format& f_;
  const Floats& w_;
  int64_t n_, rows_;
  std::shared_ptr<const interpret::Engine> engine_;
  Blob whole_;
  BlobLayout layout_;
};

TEST(Gptq, CodesAreThoseOfTheTextbook) {
  const int64_t rows = 10, columns = 256;
  const Floats w = normals(rows * columns, 21, 0.05F), h = moments_of(activations(600, columns, 22), 600, columns);
  run::Engine engine(engine_options());
  Gptq gptq(engine);
  Moments moments(engine, h, columns, {});
  int64_t all_other = 0;
  for (const char* name : {"int4_g32", "int4_g32_asym", "int3_g64_asym", "int2_g128_affine", "int8_row", "q4_k",
                           "mxfp4", "nvfp4", "nvfp4_tensor", "fp8_row", "nf4"}) {
    const FormatRef f = library_format(name);
    const Floats want = Textbook(*f, w, rows, columns).round(h, 0.01);
    const GptqResult got = gptq.round(f, w, rows, moments);
    // Scales may differ in their last bit, which is less than a code does. Where a value lies between two codes within
    // the precision of f32, the columns behind it go another way: two of all these rows may.
    int64_t other = 0;
    for (int64_t r = 0; r < rows; ++r) {
      bool differs = false;
      for (size_t k = place(r, columns, 0); k < place(r + 1, columns, 0); ++k)
        differs |= std::fabs(want[k] - got.values[k]) > 2e-3 * std::fabs(want[k]);
      other += differs;
    }
    all_other += other;
    EXPECT_LE(other, 1) << name;
    EXPECT_NEAR(got.after / trace(w, want, h, rows, columns), 1, other > 0 ? 0.05 : 1e-3) << name;
    EXPECT_EQ(decode(*f, got.blob, rows, columns), got.values) << name;
    EXPECT_NEAR(got.after / trace(w, got.values, h, rows, columns), 1, 1e-4) << name;
  }
  EXPECT_LE(all_other, 2);
}

TEST(Gptq, EveryFormatLosesLessThanByRounding) {
  const int64_t rows = 12, columns = 512;
  const Floats w = normals(rows * columns, 31, 0.05F), h = moments_of(activations(900, columns, 32), 900, columns);
  run::Engine engine(engine_options());
  Gptq gptq(engine);
  Moments straight(engine, h, columns, {}), ordered(engine, h, columns, {.act_order = true});
  std::string table;
  int number = 0;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (!f->encodes() || f->name == "e8m0") continue;  // it has no sign
    // Its step is 1, and all of these weights are less than half of it: they are made larger for it.
    const bool is_plain = f->name == "int16_plain";
    Floats larger = w;
    for (float& v : larger) v *= 64;
    const GptqResult got = gptq.round(f, is_plain ? larger : w, rows, straight);
    if (is_plain) {
      EXPECT_GT(got.after, 0);
      EXPECT_LE(got.after, 0.6 * got.before) << f->name;
      EXPECT_FALSE(got.is_nearest);
      continue;
    }
    double in_order = 0, weighed = 0;
    if (f->code && number++ % 3 == 0) in_order = gptq.round(f, w, rows, ordered).after;
    if (f->weighs()) weighed = gptq.round(f, w, rows, straight, {.weighs = true}).after;
    table += fmt::format("{:18} {:10.4g}  {:.3f} {:.3f} {:.3f}\n", f->name, got.before, got.after / got.before,
                         in_order / got.before, weighed / got.before);
    if (f->name == "f32") continue;  // nothing is lost
    // Without code blocks are rounded at once; where that gains nothing, they are rounded to nearest.
    EXPECT_LE(got.after, (f->code ? 0.6 : 1.0) * got.before) << f->name;
    EXPECT_EQ(got.is_nearest, got.after == got.before) << f->name;
    EXPECT_LT(in_order, 0.9 * got.before) << f->name;
    EXPECT_LT(weighed, 0.9 * got.before) << f->name;
  }
  if (std::getenv("LUMEN_SHOW"))
    fmt::print("format, tr(E H E^T) to nearest; with feedback, act-order, weighed\n{}", table);
}

TEST(Gptq, DifferencesOfActivationsAreAnswered) {
  const int64_t rows = 16, columns = 256, samples = 700;
  const Floats w = normals(rows * columns, 41, 0.05F), x = activations(samples, columns, 42);
  Floats read = x, difference(x.size());  // what layers before have made of it
  const Floats noise = activations(samples, columns, 47);
  for (size_t k = 0; k < x.size(); ++k) {
    read[k] = 0.93F * x[k] + 0.15F * noise[k];
    difference[k] = x[k] - read[k];
  }
  const Floats h = moments_of(read, samples, columns), c = moments_between(difference, read, samples, columns);
  run::Engine engine(engine_options());
  Gptq gptq(engine);
  const auto loss = [&](const Floats& values) {
    double sum = 0;
    for (int64_t s = 0; s < samples; ++s)
      for (int64_t r = 0; r < rows; ++r) {
        double y = 0;
        for (int64_t k = 0; k < columns; ++k)
          y += double{w[place(r, columns, k)]} * x[place(s, columns, k)] -
               double{values[place(r, columns, k)]} * read[place(s, columns, k)];
        sum += y * y;
      }
    return sum;
  };
  for (const bool act_order : {false, true}) {
    Moments moments(engine, h, columns, {.act_order = act_order});
    for (const char* name : {"int4_g32", "int3_g64_asym"}) {
      const GptqResult plain = gptq.round(library_format(name), w, rows, moments),
                       answered = gptq.round(library_format(name), w, rows, moments, {.difference = c});
      const double before = loss(plain.values), after = loss(answered.values);
      EXPECT_LT(after, 0.9 * before) << name;
      EXPECT_EQ(answered.target.size(), w.size());
      RecordProperty(name, fmt::format("{:.4g} {:.4g}", before, after));
    }
  }
}

TEST(Gptq, ThreadsDoNotShow) {
  const int64_t rows = 19, columns = 384;
  const Floats w = normals(rows * columns, 51), h = moments_of(activations(500, columns, 52), 500, columns);
  std::vector<std::vector<uint8_t>> blobs;
  for (const int threads : {1, 3}) {
    limit_loop_threads(threads);
    run::Engine engine(engine_options(threads));
    Gptq gptq(engine);
    Moments moments(engine, h, columns, {});
    blobs.push_back(gptq.round(library_format("int4_g128_asym"), w, rows, moments).blob);
  }
  limit_loop_threads(0);
  EXPECT_EQ(blobs[0], blobs[1]);
}

TEST(Gptq, DeadColumnsGoToNearestAndAreTold) {
  const int64_t rows = 5, columns = 64;
  Floats x = activations(100, columns, 62);
  for (int64_t s = 0; s < 100; ++s) x[place(s, columns, 9)] = 0;
  run::Engine engine(engine_options());
  Gptq gptq(engine);
  for (const bool act_order : {false, true}) {
    const Floats h = moments_of(x, 100, columns);
    Moments moments(engine, h, columns, {.act_order = act_order});
    EXPECT_EQ(moments.dead(), std::vector<int64_t>{9});
    EXPECT_NE(moments.remark().find("1 of 64 columns"), std::string::npos);
    const Floats w = normals(rows * columns, 61);
    const GptqResult got = gptq.round(library_format("int4_g32"), w, rows, moments, {.by_rows = true});
    // Of all numbers that its group holds none is nearer.
    for (int64_t r = 0; r < rows; ++r) {
      const float own = w[place(r, columns, 9)], to = got.values[place(r, columns, 9)];
      for (int64_t c = 0; c < 32; ++c)
        EXPECT_LE(std::abs(to - own), std::abs(got.values[place(r, columns, c)] - own)) << r << " " << c;
    }
    EXPECT_NEAR(std::accumulate(got.after_rows.begin(), got.after_rows.end(), 0.0), got.after, 1e-9 * got.after);
    EXPECT_EQ(std::ssize(got.before_rows), rows);
  }
}

TEST(Gptq, MomentsOfFewRowsGetMoreDamping) {
  const int64_t columns = 128;
  const Floats h = moments_of(activations(16, columns, 72), 16, columns);  // rank 16
  run::Engine engine(engine_options());
  EXPECT_EQ(Moments(engine, h, columns, {.samples = 16}).damping(), 0.08);
  EXPECT_EQ(Moments(engine, h, columns, {.most_damping = 0.05, .samples = 16}).damping(), 0.05);
  const Moments needed(engine, h, columns, {.damping = 0});
  EXPECT_GT(needed.damping(), 0);
  EXPECT_NE(needed.remark().find("in place of 0"), std::string::npos) << needed.remark();
  EXPECT_THROW(Moments(engine, h, columns, {.damping = 0, .most_damping = 0}), Error);
}

TEST(Gptq, HostileMomentsAreRefused) {
  run::Engine engine(engine_options());
  const int64_t n = 64;
  Floats h = moments_of(activations(200, n, 82), 200, n);
  const auto refused = [&](size_t at, float x) {
    Floats broken = h;
    broken[at] = x;
    EXPECT_THROW(Moments(engine, broken, n, {}), Error);
  };
  refused(place(3, n, 40), NAN);
  refused(place(3, n, 3), INFINITY);
  refused(place(3, n, 3), -1);
  EXPECT_THROW(Moments(engine, Floats(static_cast<size_t>(n * n)), n, {}), Error);
  Gptq gptq(engine);
  Moments moments(engine, h, n, {.act_order = true});
  Floats w = normals(n, 81);
  w[7] = NAN;
  EXPECT_THROW(gptq.round(library_format("int4_g32"), w, 1, moments), Error);
  Floats c(static_cast<size_t>(n * n));
  c[5] = NAN;
  EXPECT_THROW(gptq.round(library_format("int4_g32"), normals(n, 81), 1, moments, {.difference = c}), Error);
}

}  // namespace
}  // namespace lumen::model::compress
