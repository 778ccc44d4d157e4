# Each library that Lockstep can use. Required ones stop the configuration; an optional one that is missing switches its
# feature off, and the summary says so.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

set(LOCKSTEP_FEATURES "")
set(LOCKSTEP_MISSING "")

# lockstep_feature(<NAME> <what it gives> <found?> <libraries...>): defines LOCKSTEP_HAVE_<NAME> and links the libraries.
function(lockstep_feature name gives found)
    if(found)
        set(LOCKSTEP_HAVE_${name} ON PARENT_SCOPE)
        set_property(GLOBAL APPEND PROPERTY LOCKSTEP_DEFINITIONS LOCKSTEP_HAVE_${name}=1)
        set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LIBRARIES ${ARGN})
        message(STATUS "lockstep: ${gives}: on")
    else()
        set(LOCKSTEP_HAVE_${name} OFF PARENT_SCOPE)
        message(STATUS "lockstep: ${gives}: off (library not found)")
    endif()
endfunction()

find_package(ZLIB REQUIRED)
set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LIBRARIES ZLIB::ZLIB Threads::Threads m ${CMAKE_DL_LIBS})

# Debian's CMake package of oneDNN asks for OpenCL, which nothing here needs: find the library itself.
find_library(DNNL_LIBRARY NAMES dnnl)
find_path(DNNL_INCLUDE_DIR NAMES dnnl.h)
if(DNNL_LIBRARY AND DNNL_INCLUDE_DIR)
    set(DNNL_OK TRUE)
endif()
lockstep_feature(DNNL "fast CPU kernels (oneDNN)" "${DNNL_OK}" ${DNNL_LIBRARY})

find_library(OPENBLAS_LIBRARY NAMES openblas)
find_path(CBLAS_INCLUDE_DIR NAMES cblas.h PATH_SUFFIXES openblas x86_64-linux-gnu)
if(OPENBLAS_LIBRARY AND CBLAS_INCLUDE_DIR)
    set(BLAS_OK TRUE)
endif()
lockstep_feature(BLAS "BLAS (OpenBLAS)" "${BLAS_OK}" ${OPENBLAS_LIBRARY})

pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LIBRARIES PkgConfig::YAML)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LIBRARIES PkgConfig::JANSSON)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LIBRARIES PkgConfig::CRYPTO)
pkg_check_modules(CURL IMPORTED_TARGET libcurl)
lockstep_feature(CURL "downloads (libcurl)" "${CURL_FOUND}" PkgConfig::CURL)
pkg_check_modules(DEFLATE IMPORTED_TARGET libdeflate)
lockstep_feature(DEFLATE "fast unpacking of gzip (libdeflate)" "${DEFLATE_FOUND}" PkgConfig::DEFLATE)
pkg_check_modules(PNG IMPORTED_TARGET libpng)
lockstep_feature(PNG "PNG pictures (libpng)" "${PNG_FOUND}" PkgConfig::PNG)
pkg_check_modules(JPEG IMPORTED_TARGET libjpeg)
lockstep_feature(JPEG "JPEG pictures (libjpeg)" "${JPEG_FOUND}" PkgConfig::JPEG)
pkg_check_modules(HDF5 IMPORTED_TARGET hdf5)
lockstep_feature(HDF5 "HDF5 data" "${HDF5_FOUND}" PkgConfig::HDF5)
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)

get_property(LOCKSTEP_DEFINITIONS GLOBAL PROPERTY LOCKSTEP_DEFINITIONS)
get_property(LOCKSTEP_LIBRARIES GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
