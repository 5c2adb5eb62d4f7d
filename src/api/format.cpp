// Number formats applied to another program's arrays.
#include <mutex>

#include "api/boundary.h"
#include "api/options.h"
#include "base/error.h"
#include "base/messages/spelling.h"
#include "include/lumen.h"
#include "model/arch/family/source.h"
#include "run/engine/engine.h"

using namespace lumen;  // NOLINT: this file is the C interface and is included by no other

struct lumen_format {
  std::mutex mutex;
  FormatRef format;
  run::Engine engine;
};

namespace {

FormatRef format_of(const char* text, const char* name) {
  const auto library = model::arch::Library::builtin();
  if (!text) {
    api::require(name, "name");
    return library->formats().get(name);
  }
  const std::vector<FormatRef> all =
      model::arch::formats_of_text(library->formats(), std::make_shared<Source>(Source{"format", text}));
  if (!name) return all.back();
  std::vector<std::string> names;
  for (const FormatRef& f : all) {
    if (f->name == name) return f;
    names.push_back(f->name);
  }
  throw Error(Exit::usage, fmt::format("the text has no format '{}'", name), did_you_mean_any(name, names));
}

void require_matrix(const lumen_format& f, int64_t rows, int64_t columns) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (rows < 1 || columns < 1 || rows > kMost / columns)
    throw usage_error("a matrix cannot have {} x {} numbers", rows, columns);
  if (columns % f.format->block != 0)
    throw usage_error("{} has blocks of {} numbers: rows of {} do not divide into them", f.format->name,
                      f.format->block, columns);
}

int with_format(lumen_format* format, const std::function<void(lumen_format&)>& work) {
  return api::guarded([&] {
    api::require(format, "format");
    const std::lock_guard lock(format->mutex);
    work(*format);
  });
}

}  // namespace

extern "C" {

int lumen_format_open(const char* text, const char* name, const char* options, lumen_format** format) {
  return api::guarded([&] {
    api::require(format, "format");
    api::Options given(options);
    const run::Engine::Options engine = api::engine_options(given);
    given.finish();
    *format = new lumen_format{{}, format_of(text, name), run::Engine(engine)};
  });
}

void lumen_format_close(lumen_format* format) {
  delete format;
}

int lumen_format_info(lumen_format* format, char** json) {
  return with_format(format, [&](lumen_format& f) {
    api::require(json, "json");
    nlohmann::ordered_json out;
    out["name"] = f.format->name;
    out["block"] = f.format->block;
    out["bits"] = 8.0 * double(f.format->block_bytes) / double(f.format->block);
    *json = api::handed_over(out.dump());
  });
}

int lumen_format_encode(lumen_format* format, const float* numbers, int64_t rows, int64_t columns, uint8_t** bytes,
                        size_t* size) {
  return with_format(format, [&](lumen_format& f) {
    api::require(numbers, "numbers");
    api::require(bytes, "bytes");
    api::require(size, "size");
    require_matrix(f, rows, columns);
    const std::vector<uint8_t> blob = f.engine.encode(f.format, numbers, rows, columns);
    *bytes = api::handed_over(std::span<const uint8_t>(blob));
    *size = blob.size();
  });
}

int lumen_format_decode(lumen_format* format, const uint8_t* bytes, size_t size, int64_t rows, int64_t columns,
                        float** numbers) {
  return with_format(format, [&](lumen_format& f) {
    api::require(bytes, "bytes");
    api::require(numbers, "numbers");
    require_matrix(f, rows, columns);
    const size_t wanted = size_t(blob_layout(*f.format, rows, columns).total);
    if (size != wanted)
      throw usage_error("a matrix of {} x {} numbers in {} has {} bytes, not {}", rows, columns, f.format->name, wanted,
                        size);
    *numbers = api::handed_over(std::span<const float>(f.engine.decode(f.format, bytes, rows, columns)));
  });
}

}  // extern "C"
