# liblockstep_cuda.so, the GPU part. CMake's own CUDA language would make every configuration wait for a test of the
# compiler and link cudart into everything; one rule a source file is all that is needed here.
set(LOCKSTEP_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures to compile for; the last one also as PTX for later ones")

set(cuda_flags -std=c++17 -O3 -Xcompiler=-fPIC,-Wall,-Wextra --threads 1 -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src
    -I${CUDNN_INCLUDE_DIR} -I${NCCL_INCLUDE_DIR})
foreach(architecture ${LOCKSTEP_CUDA_ARCHITECTURES})
    list(APPEND cuda_flags -gencode=arch=compute_${architecture},code=sm_${architecture})
    set(last_architecture ${architecture})
endforeach()
list(APPEND cuda_flags -gencode=arch=compute_${last_architecture},code=compute_${last_architecture})
if(LOCKSTEP_WERROR)
    list(APPEND cuda_flags -Werror=all-warnings)
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS engine/cuda/*.cu engine/cuda/small/*.cu)
file(GLOB cuda_headers CONFIGURE_DEPENDS engine/cuda/*.cuh engine/cuda/small/*.cuh device/*.h)
set(cuda_objects "")
foreach(source ${cuda_sources})
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/cuda
        COMMAND ${CCACHE_FOR_CUDA} ${LOCKSTEP_NVCC} ${cuda_flags} -MD -MF ${object}.d -c ${source} -o ${object}
        DEPENDS ${source} ${cuda_headers} DEPFILE ${object}.d COMMENT "Building CUDA object ${name}" VERBATIM)
    list(APPEND cuda_objects ${object})
endforeach()

add_library(lockstep_cuda SHARED ${cuda_objects})
# cuDNN may live beside the toolkit; the last folder is the usual one, for a program that is taken to another machine.
get_filename_component(cudnn_folder ${CUDNN_LIBRARY} DIRECTORY)
set(cuda_folders ${CUDAToolkit_LIBRARY_DIR} ${cudnn_folder} /usr/local/cuda/lib64)
list(REMOVE_DUPLICATES cuda_folders)
set_target_properties(lockstep_cuda PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME lockstep_cuda
    INSTALL_RPATH "${cuda_folders}" BUILD_RPATH "${cuda_folders}")
target_link_options(lockstep_cuda PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/lockstep_cuda.map -Wl,--no-undefined)
target_link_libraries(lockstep_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt ${CUDNN_LIBRARY}
    Threads::Threads ${CMAKE_DL_LIBS} rt)
install(TARGETS lockstep_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
