# The floors inside model, from below. A folder of src/model is a library and a namespace, lumen_model_FOLDER and
# lumen::model::FOLDER, and may include itself and the folders of rows above its own. tools/house.py reads this list, and
# checks includes and namespaces.
set(LUMEN_FLOORS_OF_MODEL
  "file"
  "text image"
  "templates"
  "data"
  "arch"
  "recipe linear infer"
  "calibrate"
  "compress"
  "eval report"
  "train"
  "serve device_tensors"
)

# What only some of them need.
lumen_external(TEXT_LIBRARIES SHARED PkgConfig::PCRE2 ${UTF8PROC_LIBRARY} INSIDE pcre2-8 utf8proc)
lumen_external(DATA_LIBRARIES SHARED ZLIB::ZLIB Snappy::snappy PkgConfig::LZ4 PkgConfig::BROTLI ${ZSTD_LIBRARY}
               INSIDE z snappy lz4 brotlidec brotlienc brotlicommon zstd)
lumen_external(IMAGE_LIBRARIES SHARED JPEG::JPEG PNG::PNG PkgConfig::WEBP INSIDE webp z OF_PROGRAMS jpeg png16)
set(libraries_of_image ${IMAGE_LIBRARIES})
set(libraries_of_text lumen_embedded_models ${TEXT_LIBRARIES})
set(libraries_of_data lumen_embedded_data ${DATA_LIBRARIES})
set(libraries_of_report lumen_embedded_report)

set(below lumen_run nlohmann_json::nlohmann_json)
foreach(row IN LISTS LUMEN_FLOORS_OF_MODEL)
  separate_arguments(folders UNIX_COMMAND "${row}")
  foreach(folder IN LISTS folders)
    lumen_floor(model/${folder} ${below} ${libraries_of_${folder}})
  endforeach()
  list(TRANSFORM folders PREPEND lumen_model_)
  list(APPEND below ${folders})
endforeach()
target_link_libraries(lumen_model_linear PRIVATE Eigen3::Eigen)
add_library(lumen_model INTERFACE)
target_link_libraries(lumen_model INTERFACE ${below})
