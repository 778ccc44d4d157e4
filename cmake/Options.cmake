option(LOCKSTEP_WERROR "Treat warnings as errors" ON)
set(LOCKSTEP_CUDA "AUTO" CACHE STRING "The GPU part: ON, OFF, or AUTO where the toolkit is found")
set(LOCKSTEP_FORTRAN "AUTO" CACHE STRING "The Fortran module: ON, OFF, or AUTO where there is a compiler")
set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")

# -ffp-contract=off: the same bits from the compiler's loops whatever the optimisation level; kernels that want a fused
# multiply-add ask for it by name.
add_compile_options(-Wall -Wextra $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed> $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> -ffp-contract=off)
if(LOCKSTEP_WERROR)
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-Werror>)
endif()
option(LOCKSTEP_HARDENED "Stack protector, checked libc calls and read-only relocations" ON)
if(LOCKSTEP_HARDENED AND NOT LOCKSTEP_SANITIZE) # which check the same, and more
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>)
    add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
    add_link_options(-Wl,-z,relro,-z,now)
endif()
if(LOCKSTEP_SANITIZE)
    add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
    if(LOCKSTEP_SANITIZE MATCHES "thread") # fences order what processes share, which this sanitizer does not look at
        add_compile_options($<$<C_COMPILER_ID:GNU>:-Wno-tsan>)
    endif()
endif()
