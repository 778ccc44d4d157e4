# What `make install` puts where: headers, both libraries, lockstep.pc and the CMake package. The command, its man page and
# its completion are installed by src/cli.
include(CMakePackageConfigHelpers)
include(StaticLinkage)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

install(DIRECTORY include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set_target_properties(lockstep_shared PROPERTIES EXPORT_NAME lockstep)
foreach(kind shared static)
    install(TARGETS lockstep_${kind} EXPORT lockstep-${kind}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT lockstep-${kind} NAMESPACE lockstep:: DESTINATION ${package_dir})
endforeach()

# A program that links liblockstep.a links what the library itself uses; the shared library brings that along.
lockstep_static_linkage(LOCKSTEP_PC_LIBS LOCKSTEP_PACKAGE_DEPENDENCIES ${LOCKSTEP_LIBRARIES})
# It finds the plug-ins by its rpath, wherever it lies itself.
target_link_options(lockstep_static INTERFACE
    $<INSTALL_INTERFACE:-Wl,-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>)

# Relative to where the file lies, so that an installed tree may be moved.
file(RELATIVE_PATH LOCKSTEP_PC_UP ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" LOCKSTEP_PC_UP "${LOCKSTEP_PC_UP}")
# Programs find the shared library where it lies, except in /usr, where every program looks by itself.
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    set(LOCKSTEP_PC_RPATH " -Wl,-rpath,\${libdir}")
endif()
configure_file(cmake/lockstep.pc.in ${CMAKE_BINARY_DIR}/lockstep.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(cmake/lockstep-config.cmake.in ${CMAKE_BINARY_DIR}/lockstep-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lockstep-config.cmake ${CMAKE_BINARY_DIR}/lockstep-config-version.cmake
        DESTINATION ${package_dir})

# The loader's cache learns of the library where root installs it for all: not into a package's staging folder (DESTDIR), nor
# into a prefix that the loader does not look at.
install(CODE [[
    if("$ENV{DESTDIR}" STREQUAL "" AND CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?/?$")
        find_program(LDCONFIG ldconfig PATHS /usr/sbin /sbin)
        execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
        if(LDCONFIG AND user STREQUAL "0")
            execute_process(COMMAND ${LDCONFIG})
        endif()
    endif()
]])
