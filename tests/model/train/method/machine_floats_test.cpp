// needs: none. Names of the machine's own 8-bit floats: which format they are by the codes its instructions read.
#include "model/train/method/machine_floats.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::model::train {
namespace {

// What machines without such instructions read, those of OCP's codes, and those of the FNUZ family.
bool none(const FieldType& /*type*/) {
  return false;
}
bool ocp(const FieldType& t) {
  return t.special == FieldType::Special::fn || t.special == FieldType::Special::ieee;
}
bool without_minus(const FieldType& t) {
  return t.special == FieldType::Special::fnuz;
}

TEST(MachineFloats, FollowTheCodesOfTheMachine) {
  const FormatLibrary& formats = test_library()->formats();
  for (const auto& [name, usual, other] : {std::tuple{"machine_e4m3", "fp8_e4m3", "fp8_e4m3fnuz"},
                                           {"machine_e5m2", "fp8_e5m2", "fp8_e5m2fnuz"},
                                           {"machine_e4m3_row", "fp8_row", "fp8_e4m3fnuz_row"},
                                           {"machine_e4m3_tensor", "fp8_tensor", "fp8_e4m3fnuz_tensor"},
                                           {"machine_e5m2_row", "fp8_e5m2_row", "fp8_e5m2fnuz_row"},
                                           {"machine_e5m2_tensor", "fp8_e5m2_tensor", "fp8_e5m2fnuz_tensor"}}) {
    EXPECT_EQ(machine_float(name, ocp, formats), usual);
    EXPECT_EQ(machine_float(name, none, formats), usual) << "without such instructions";
    EXPECT_EQ(machine_float(name, without_minus, formats), other);
  }
  EXPECT_EQ(machine_float("fp8_e4m3", without_minus, formats), "fp8_e4m3") << "a fixed name";
  for (const char* wrong : {"machine_e3m4_tile", "machine_", "machine_e4m4", "machine_e4m3_block"})
    EXPECT_THROW((void)machine_float(wrong, ocp, formats), Error) << wrong;
}

TEST(MachineFloats, RecipesSayWhatWasTaken) {
  const FormatLibrary& formats = test_library()->formats();
  recipe::Recipe r;
  r.products.activation = r.products.weight = "machine_e4m3_row";
  r.products.gradient = "fp8_e5m2_row";
  std::string said;
  const recipe::Recipe taken = with_machine_floats(r, without_minus, formats, &said);
  EXPECT_EQ(taken.products.weight, "fp8_e4m3fnuz_row");
  EXPECT_EQ(taken.products.gradient, "fp8_e5m2_row");
  EXPECT_EQ(said, "8-bit float of this machine: machine_e4m3_row is fp8_e4m3fnuz_row");
  // On another machine the checkpoint's recipe keeps what it has, and a line says so.
  said.clear();
  EXPECT_EQ(with_machine_floats(taken, ocp, formats, &said).products.weight, "fp8_e4m3fnuz_row");
  EXPECT_EQ(said, "");
  EXPECT_NE(other_floats(taken, ocp, formats).find("fp8_e4m3fnuz_row"), std::string::npos);
  EXPECT_EQ(other_floats(taken, none, formats), "");
}

}  // namespace
}  // namespace lumen::model::train
