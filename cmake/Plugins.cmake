# The plug-ins, liblockstep_<name>.so: each is the sources of one folder that need one heavy library, and is opened when something
# first needs it. src/base/plugin.h says how. They lie beside liblockstep.so.

# What stands in for the library inside of them.
add_library(lockstep_inside_plugin STATIC base/inside_plugin.c base/kept_error.c base/text.c base/number_text.c tensor/dtype.c tensor/shape.c
                                          tensor/tensor_inside_plugin.c comm/comm_inside_plugin.c)
target_include_directories(lockstep_inside_plugin PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(lockstep_inside_plugin PUBLIC ${LOCKSTEP_DEFINITIONS})

add_custom_target(lockstep_plugins)

# lockstep_plugin(<name> <folder> <libraries...>)
function(lockstep_plugin name folder)
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c ${folder}/*.cc)
    add_library(lockstep_${name} MODULE ${sources})
    target_link_libraries(lockstep_${name} PRIVATE lockstep_inside_plugin ${ARGN} Threads::Threads m)
    target_link_options(lockstep_${name} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/plugin.map)
    if(NOT LOCKSTEP_SANITIZE)
        target_link_options(lockstep_${name} PRIVATE -Wl,--no-undefined)
    endif()
    set_target_properties(lockstep_${name} PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/plugin.map
        INSTALL_RPATH_USE_LINK_PATH ON)
    add_dependencies(lockstep_plugins lockstep_${name})
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_PLUGINS ${name})
    install(TARGETS lockstep_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

if(LOCKSTEP_HAVE_MPI)
    lockstep_plugin(mpi comm/mpi ${LOCKSTEP_MPI_LIBRARIES})
endif()
if(LOCKSTEP_HAVE_MPICH)
    lockstep_plugin(mpich comm/mpi ${LOCKSTEP_MPICH_LIBRARIES})
    target_include_directories(lockstep_mpich SYSTEM PRIVATE ${MPICH_INCLUDE_DIR})
    target_compile_definitions(lockstep_mpich PRIVATE LOCKSTEP_PLUGIN_MPICH=1)
    target_compile_options(lockstep_mpich PRIVATE -Wno-unknown-warning-option -Wno-stringop-overflow) # GCC takes MPI_STATUSES_IGNORE for an array
endif()
if(LOCKSTEP_HAVE_GLOO)
    lockstep_plugin(gloo comm/gloo ${LOCKSTEP_GLOO_LIBRARIES}) # the one C++ file
endif()
if(LOCKSTEP_HAVE_HDF5)
    lockstep_plugin(hdf5 data/hdf5 ${LOCKSTEP_HDF5_LIBRARIES})
endif()
if(LOCKSTEP_HAVE_FFTW)
    lockstep_plugin(fftw data/fftw ${LOCKSTEP_FFTW_LIBRARIES})
endif()
if(LOCKSTEP_HAVE_CURL)
    lockstep_plugin(curl data/curl ${LOCKSTEP_CURL_LIBRARIES})
endif()
if(LOCKSTEP_HAVE_PNG OR LOCKSTEP_HAVE_JPEG)
    lockstep_plugin(pictures tensor/pictures ${LOCKSTEP_PNG_LIBRARIES} ${LOCKSTEP_JPEG_LIBRARIES})
endif()
if(LOCKSTEP_HAVE_HTTP)
    lockstep_plugin(http board/http ${LOCKSTEP_HTTP_LIBRARIES})
endif()
if(LOCKSTEP_HAVE_PLPLOT)
    lockstep_plugin(plplot plot/plplot ${LOCKSTEP_PLPLOT_LIBRARIES})
endif()
if(LOCKSTEP_HAVE_ONNX)
    # The messages' C sources, made from the description in Debian's libonnx-dev.
    set(onnx_sources ${CMAKE_CURRENT_BINARY_DIR}/onnx_messages)
    file(MAKE_DIRECTORY ${onnx_sources})
    add_custom_command(OUTPUT ${onnx_sources}/onnx.pb-c.c ${onnx_sources}/onnx.pb-c.h
        COMMAND ${PROTOC_C} --c_out=${onnx_sources} -I ${ONNX_PROTO_DIR} ${ONNX_PROTO_DIR}/onnx.proto
        DEPENDS ${ONNX_PROTO_DIR}/onnx.proto)
    lockstep_plugin(onnx onnx/protobuf ${LOCKSTEP_ONNX_LIBRARIES})
    target_sources(lockstep_onnx PRIVATE ${onnx_sources}/onnx.pb-c.c ${onnx_sources}/onnx.pb-c.h)
    target_include_directories(lockstep_onnx PRIVATE ${onnx_sources})
endif()
