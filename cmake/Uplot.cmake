# uPlot, the library that draws the live page's charts: npm fetches this version of it once into the build folder, and what it has
# fetched must be the very bytes that were looked at. Sets UPLOT_OK, UPLOT_SCRIPT and UPLOT_STYLE, or UPLOT_OFF, the reason.
set(UPLOT_VERSION 1.6.32)
set(UPLOT_SHA512 2883159c6ebccefbb95d751b0b82d010f9e1c0ec41b8bc96d401eda66e882935c89a46cb824332fa369b8cb8122cc6ac36e186cd09bf7a9ded3a4c93c6989023)
set(UPLOT_OK FALSE)
set(uplot_folder ${CMAKE_BINARY_DIR}/uplot)
set(uplot_package ${uplot_folder}/uplot-${UPLOT_VERSION}.tgz)
find_program(NPM npm)

# A build of the same tree may have it already: builds with sanitizers need no network of their own.
file(GLOB uplot_elsewhere ${PROJECT_SOURCE_DIR}/build*/uplot/uplot-${UPLOT_VERSION}.tgz)
if(NOT EXISTS ${uplot_package} AND uplot_elsewhere)
    list(GET uplot_elsewhere 0 uplot_first)
    file(COPY ${uplot_first} DESTINATION ${uplot_folder})
endif()
if(NOT EXISTS ${uplot_package} AND NPM)
    file(MAKE_DIRECTORY ${uplot_folder})
    execute_process(
        COMMAND ${NPM} pack uplot@${UPLOT_VERSION} --ignore-scripts --silent --prefer-offline --fetch-retries=0 --fetch-timeout=20000
        WORKING_DIRECTORY ${uplot_folder} TIMEOUT 60 RESULT_VARIABLE uplot_result OUTPUT_QUIET ERROR_QUIET)
endif()

if(EXISTS ${uplot_package})
    file(SHA512 ${uplot_package} uplot_found)
    if(uplot_found STREQUAL UPLOT_SHA512)
        file(ARCHIVE_EXTRACT INPUT ${uplot_package} DESTINATION ${uplot_folder}
             PATTERNS package/dist/uPlot.iife.min.js package/dist/uPlot.min.css)
        set(UPLOT_SCRIPT ${uplot_folder}/package/dist/uPlot.iife.min.js)
        set(UPLOT_STYLE ${uplot_folder}/package/dist/uPlot.min.css)
        set(UPLOT_OK TRUE)
    else()
        file(REMOVE ${uplot_package})
        set(UPLOT_OFF "npm gave another uPlot ${UPLOT_VERSION} than the one that is expected")
    endif()
elseif(NOT NPM)
    set(UPLOT_OFF "npm not found")
else()
    set(UPLOT_OFF "npm could not fetch uPlot ${UPLOT_VERSION}")
endif()
