#include "number/facts/type_ids.h"

#include <algorithm>
#include <array>

#include "number/facts/facts.h"

namespace lumen {
namespace {

constexpr std::array<ScalarIds, 13> kIds = {{{Scalar::f32, 0, "F32"},
                                             {Scalar::f16, 1, "F16"},
                                             {Scalar::bf16, 30, "BF16"},
                                             {Scalar::f64, 28, "F64"},
                                             {Scalar::i8, 24, "I8"},
                                             {Scalar::i16, 25, "I16"},
                                             {Scalar::i32, 26, "I32"},
                                             {Scalar::i64, 27, "I64"},
                                             {Scalar::u8, -1, "U8"},
                                             {Scalar::u16, -1, "U16"},
                                             {Scalar::u32, -1, "U32"},
                                             {Scalar::u64, -1, "U64"},
                                             {Scalar::boolean, -1, "BOOL"}}};

// Other safetensors dtypes whose storage no format matches.
constexpr std::array<std::string_view, 4> kOtherDtypes = {"F4", "F6_E2M3", "F6_E3M2", "C64"};

}  // namespace

std::span<const ScalarIds> scalar_ids() {
  return kIds;
}

std::optional<std::string> claimed_scalar(const Format& f) {
  for (const ScalarIds& row : kIds) {
    if (plain_scalar(f) == row.scalar)
      continue;  // the format is that float; integers are read as scalars, never as formats
    if (f.gguf_type && *f.gguf_type == row.gguf)
      return fmt::format("format '{}' claims gguf {}, which is plain {} in every file", f.name, row.gguf,
                         scalar_name(row.scalar));
    if (f.safetensors_type == row.safetensors)
      return fmt::format("format '{}' claims safetensors \"{}\", which is plain {} in every file", f.name,
                         row.safetensors, scalar_name(row.scalar));
  }
  if (std::find(kOtherDtypes.begin(), kOtherDtypes.end(), f.safetensors_type) != kOtherDtypes.end())
    return fmt::format("format '{}' claims safetensors \"{}\", which means another layout in every file", f.name,
                       f.safetensors_type);
  return std::nullopt;
}

}  // namespace lumen
