# lockstep_add_tests(<folder>): every test_*.c of the folder is one cmocka program and one ctest entry, <folder>.<file>. What
# they share lies in case*.c. A test_slow_*.c has the label slow and more time.
function(lockstep_add_tests folder)
    get_filename_component(folder_name ${folder} NAME)
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/test_*.c)
    file(GLOB shared CONFIGURE_DEPENDS ${folder}/case*.c)
    set(seconds 300)
    if(LOCKSTEP_SANITIZE)
        set(seconds 900) # the thread sanitizer makes a program ten times slower
    endif()
    foreach(source ${sources})
        get_filename_component(name ${source} NAME_WE)
        set(target ${folder_name}_${name})
        add_executable(${target} ${source} ${shared})
        target_link_libraries(${target} PRIVATE lockstep_test_support)
        set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
        add_test(NAME ${folder_name}.${name} COMMAND ${target} WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
        # A program writes to scratch folders of its own: where it is more than one test, they take turns.
        set_tests_properties(${folder_name}.${name} PROPERTIES RESOURCE_LOCK ${target})
        set(variables XDG_CONFIG_HOME=${CMAKE_BINARY_DIR}/tests/home) # the key of whoever runs the tests stays as it is
        if(folder_name MATCHES "^(train|estimator|nn|optim|cli|config)$") # where a test says nothing of the device, on any machine
            list(APPEND variables LOCKSTEP_ENGINE=cpu)
        endif()
        if(name MATCHES "^test_(options|keys_)") # what --ddp and --comm nccl do depends on the GPUs of the machine
            list(APPEND variables CUDA_VISIBLE_DEVICES=)
        endif()
        if(LOCKSTEP_SANITIZE MATCHES "address") # it ends in a crash of its own over the thread-local memory of what was loaded late
            list(APPEND variables ASAN_OPTIONS=intercept_tls_get_addr=0)
        endif()
        set_tests_properties(${folder_name}.${name} PROPERTIES ENVIRONMENT "${variables}")
        if(name MATCHES "^test_slow_")
            set_tests_properties(${folder_name}.${name} PROPERTIES LABELS slow TIMEOUT 900)
        else()
            set_tests_properties(${folder_name}.${name} PROPERTIES LABELS fast TIMEOUT ${seconds})
        endif()
    endforeach()
endfunction()
