// A number format as a plain value: fields with layouts at levels, and three routines. Everything else about a format
// is derived from this. No code may branch on `name`.
//
// A tensor in format F, of shape [..., R, C] (C contiguous, a multiple of block), is stored as ONE blob:
// data      R' rows x (C / block) records of block_bytes          (R' = product of all dims but the last)
// row       R' records of row_bytes                                (when the format has row fields)
// tile      ceil(R'/tile_rows) x ceil(C/tile_columns) records      (when it has tile fields)
// tensor    one record of tensor_bytes                             (when it has tensor fields)
// each section starting at a multiple of 64 bytes from the start of the blob (blob_layout). Files store the data
// section under the tensor's name; other sections as extra tensors NAME.row, NAME.tile, NAME.tensor.
//
// May include: base, number/formula.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "number/format/layout.h"
#include "number/format/routine.h"

namespace lumen {

enum class Level : uint8_t {
  block,
  row,
  tile,
  tensor
};  // element-level fields are block fields with one value per element
constexpr int kLevels = 4;

// The source of a field's value; chosen by the user of a format, not by the format.
enum class FieldSource : uint8_t { fitted, learned, supplied, delayed, predicted };

// Interpretation of stored bits as a number. Integers: two's complement or unsigned of `bits`. Floats: any small float.
struct FieldType {
  bool is_float = false;
  bool is_signed = false;  // integers
  int bits = 8;            // all bits, sign included
  // Floats: sign bit (if has_sign) on top, then exponent, then mantissa.
  bool has_sign = true;
  int exponent_bits = 0, mantissa_bits = 0, bias = 0;
  enum class Special : uint8_t {
    ieee,    // top exponent is Inf / NaN
    fn,      // no Inf; all-ones is NaN (OCP E4M3)
    fnuz,    // no Inf, no -0; the code of -0 is NaN
    finite,  // every code is a number (FP4, FP6)
    scale,   // unsigned power of two: all-ones is NaN, no zero
  } special = Special::ieee;
  friend bool operator==(const FieldType&, const FieldType&) = default;

  Scalar register_type() const;  // f32 for floats; i32 / u32 for integers (i64/u64 above 32 bits)
  double max_finite() const;     // floats
  bool has_nan() const;          // floats that have a code for NaN
  bool has_infinity() const;     // floats that have codes for Inf
};
double field_decode(const FieldType& t, uint64_t bits);   // exact
uint64_t field_encode(const FieldType& t, double value);  // floats: nearest even, saturating, NaN and Inf kept where
                                                          // they exist; integers: clamped
struct Field {
  std::string name;
  Level level = Level::block;
  FieldType type;
  int64_t count = 1;
  Layout layout;  // bits inside the level's record
};

struct FormatTable {
  std::string name;
  Scalar type = Scalar::f32;  // f32 or i32 (also u8/i8 written as such)
  std::vector<double> values;
};

// When the weighted fit of the block assigns the code field itself, `code` is not run; a plain fit never does both.
// KeptLocal: a local of the block's fit that `code` reads; it is kept for every block. When the fit is skipped because
// its fields were supplied, the local takes the stored value of `field` (the field it was directly assigned to: `d =
// s`); -1: no such field, so the fit cannot be skipped.
struct KeptLocal {
  int fit_variable = 0;   // in fit[block].variables
  int code_variable = 0;  // in code.variables; same type and extent
  int field = -1;
};

struct Format {
  std::string name;
  std::string doc;
  int64_t block = 1;  // elements per block
  int64_t block_bytes = 0, row_bytes = 0, tile_bytes = 0, tensor_bytes = 0;
  int64_t tile_rows = 0, tile_columns = 0;
  std::optional<int> gguf_type;       // ggml type id, when the data section alone is a GGUF tensor
  std::optional<int> gguf_file_type;  // general.file_type of a whole file in this format
  std::string safetensors_type;       // dtype name, when one exists ("F16", "F8_E4M3")
  std::vector<Field> fields;
  std::vector<FormatTable> tables;
  int code_field = -1;          // the field that holds one code per element, written by `code`; -1: fit writes all
  Routine decode;               // (i) -> f32
  std::optional<Routine> code;  // (v, i) -> value for code_field[i]
  std::array<std::optional<Routine>, kLevels>
      fit;  // by level; run outermost level first; x[j] is relative to the level's extent
  std::vector<KeptLocal> kept;
  // fit(x, w) with the importance w[j] >= 0 of each value (RoutineExpr::source with slot 1), in addition to fit(x).
  std::array<std::optional<Routine>, kLevels> weighted_fit;
  std::vector<KeptLocal> weighted_kept;  // of weighted_fit[block] for code
  std::vector<KeptLocal>
      weighted_row_kept;  // locals of weighted_fit[row] (fit_variable) read by weighted_fit[block] (code_variable)
  bool encodes() const { return code || fit[0]; }  // decoder-only formats (codebooks) exist
  bool weighs() const;                             // has a weighted fit at some level
  std::string source_text;                         // canonical text of the definition; the identity of the format
  Hash hash;                                       // of source_text

  double bits_per_weight(int64_t rows, int64_t columns) const;  // all sections
  double bits_per_weight() const;                               // limit for large tensors: block section (+ tile)
};
using FormatRef = std::shared_ptr<const Format>;

// Byte offsets of the sections in a blob for R' rows of C columns. Checked arithmetic; Error when C % block != 0.
struct BlobLayout {
  int64_t row_stride = 0;  // bytes of one row in the data section
  int64_t data_bytes = 0;
  std::array<int64_t, kLevels> section{};  // offset of block data (0), row, tile, tensor sections
  int64_t tile_columns = 0;                // tiles per row of tiles
  int64_t total = 0;                       // bytes of the blob, a multiple of 64
};
BlobLayout blob_layout(const Format& f, int64_t rows, int64_t columns);

}  // namespace lumen
