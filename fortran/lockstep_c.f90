! What the module `lockstep` needs of the C interface: structs as the headers in include/lockstep declare them, the functions that
! take them, and how a failure reaches the caller. Programs use the module `lockstep`.
module lockstep_c
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none
    public

    ! lk_status
    integer, parameter :: LK_OK = 0, LK_ERR_INVALID = 1, LK_ERR_SHAPE = 2, LK_ERR_DTYPE = 3, LK_ERR_RANGE = 4, &
        LK_ERR_NOMEM = 5, LK_ERR_IO = 6, LK_ERR_NOT_FOUND = 7, LK_ERR_FORMAT = 8, LK_ERR_CONFIG = 9, &
        LK_ERR_UNSUPPORTED = 10, LK_ERR_NAN = 11, LK_ERR_TIMEOUT = 12, LK_ERR_PEER = 13, LK_ERR_STOPPED = 14, &
        LK_ERR_DEVICE = 15
    ! lk_dtype
    integer, parameter :: LK_F32 = 0, LK_F64 = 1, LK_BF16 = 2, LK_F16 = 3, LK_I64 = 4, LK_I32 = 5
    ! lk_component_kind
    integer(c_int), parameter :: KIND_MODULE = 0, KIND_CRITERION = 1, KIND_OPTIMIZER = 2, KIND_SCHEDULER = 3
    integer, parameter :: MAX_DIMS = 8

    type, bind(C) :: c_shape
        integer(c_int) :: rank = 0
        integer(c_int64_t) :: dim(MAX_DIMS) = 0
    end type
    type, bind(C) :: c_tensor
        integer(c_int) :: dtype = 0
        type(c_shape) :: shape
        integer(c_int64_t) :: stride(MAX_DIMS) = 0
        type(c_ptr) :: data = c_null_ptr
        type(c_ptr) :: buffer = c_null_ptr
    end type
    type, bind(C) :: c_input
        type(c_ptr) :: name, tensor
    end type
    ! The beginning of lk_param and of lk_comm.
    type, bind(C) :: c_param
        type(c_ptr) :: name, value, grad
    end type
    type, bind(C) :: c_comm
        type(c_ptr) :: ops
        integer(c_int) :: rank, size
    end type
    type, bind(C) :: c_engine_options
        integer(c_size_t) :: struct_size = 0
        integer(c_int) :: thread_count = 0, device = 0
        logical(c_bool) :: allow_tf32 = .false._c_bool, benchmark = .false._c_bool
        integer(c_int) :: cpu_level = 0, lane_count = 0
    end type
    type, bind(C) :: c_scaler_options
        real(c_double) :: init_scale = 0, growth_factor = 0, backoff_factor = 0
        integer(c_int64_t) :: growth_interval = 0
    end type
    type, bind(C) :: c_step_options
        integer(c_size_t) :: struct_size = 0
        type(c_ptr) :: model = c_null_ptr, criterion = c_null_ptr, optimizer = c_null_ptr
        type(c_ptr) :: input_key = c_null_ptr, output_key = c_null_ptr, target_key = c_null_ptr, loss_key = c_null_ptr
        type(c_funptr) :: function = c_null_funptr
        type(c_ptr) :: context = c_null_ptr, engine = c_null_ptr, generator = c_null_ptr
        integer(c_int) :: precision = 0
        type(c_scaler_options) :: scaler
        integer(c_int) :: accumulation_steps = 0
        real(c_double) :: clip_norm = 0, clip_value = 0
        type(c_ptr) :: comm = c_null_ptr
        logical(c_bool) :: sync_batch_norm = .false._c_bool
        integer(c_int64_t) :: bucket_nbytes = 0
        logical(c_bool) :: compress_gradients = .false._c_bool
        integer(c_int) :: check_replicas = 0
        logical(c_bool) :: allow_nan = .false._c_bool, asynchronous = .false._c_bool, owned = .false._c_bool, &
            uneven_batches = .false._c_bool
        type(c_ptr) :: weight_key = c_null_ptr, scheduler = c_null_ptr
    end type
    type, bind(C) :: c_file_options
        integer(c_size_t) :: struct_size = 0
        logical(c_bool) :: collective = .false._c_bool
    end type
    type, bind(C) :: c_predictor_options
        integer(c_size_t) :: struct_size = 0
        type(c_ptr) :: model = c_null_ptr, config = c_null_ptr, device = c_null_ptr
        integer(c_int) :: precision = 0
        integer(c_int64_t) :: max_batch = 0
        type(c_ptr) :: input_key = c_null_ptr, output_key = c_null_ptr
        integer(c_int) :: thread_count = 0
    end type

    interface
        ! status.h, random.h
        type(c_ptr) function c_lk_error() bind(C, name='lk_error')
            import c_ptr
        end function
        integer(c_int) function c_lk_error_status() bind(C, name='lk_error_status')
            import c_int
        end function
        integer(c_int) function c_lk_fail_text(status, sentence) bind(C, name='lk_fail_text')
            import c_int, c_char
            integer(c_int), value :: status
            character(kind=c_char), intent(in) :: sentence(*)
        end function
        integer(c_size_t) function c_strlen(text) bind(C, name='strlen')
            import c_size_t, c_ptr
            type(c_ptr), value :: text
        end function
        subroutine c_lk_manual_seed(seed) bind(C, name='lk_manual_seed')
            import c_int64_t
            integer(c_int64_t), value :: seed
        end subroutine

        ! config.h
        integer(c_int) function c_lk_component_make(text, given, count, kind, out) bind(C, name='lk_component_make')
            import c_int, c_char, c_ptr
            character(kind=c_char), intent(in) :: text(*)
            type(c_ptr), value :: given
            integer(c_int), value :: count, kind
            type(c_ptr), intent(out) :: out
        end function
        subroutine c_lk_component_dispose(kind, object) bind(C, name='lk_component_dispose')
            import c_int, c_ptr
            integer(c_int), value :: kind
            type(c_ptr), value :: object
        end subroutine
        type(c_ptr) function c_lk_module_from_config(path) bind(C, name='lk_module_from_config')
            import c_char, c_ptr
            character(kind=c_char), intent(in) :: path(*)
        end function

        ! nn.h, runner.h, checkpoint.h
        type(c_ptr) function c_lk_sequential(modules, count) bind(C, name='lk_sequential_with')
            import c_int, c_ptr
            type(c_ptr), value :: modules
            integer(c_int), value :: count
        end function
        integer(c_int) function c_lk_module_add_child(module, name, child) bind(C, name='lk_module_add_child')
            import c_int, c_char, c_ptr
            type(c_ptr), value :: module, child
            character(kind=c_char), intent(in) :: name(*)
        end function
        type(c_ptr) function c_lk_module_share(module) bind(C, name='lk_module_share')
            import c_ptr
            type(c_ptr), value :: module
        end function
        type(c_ptr) function c_lk_module_clone(module) bind(C, name='lk_module_clone')
            import c_ptr
            type(c_ptr), value :: module
        end function
        subroutine c_lk_module_free(module) bind(C, name='lk_module_free')
            import c_ptr
            type(c_ptr), value :: module
        end subroutine
        integer(c_int) function c_lk_module_to(module, dtype) bind(C, name='lk_module_to')
            import c_int, c_ptr
            type(c_ptr), value :: module
            integer(c_int), value :: dtype
        end function
        integer(c_int64_t) function c_lk_module_param_count(module) bind(C, name='lk_module_param_count')
            import c_int64_t, c_ptr
            type(c_ptr), value :: module
        end function
        type(c_ptr) function c_lk_module_param(module, path) bind(C, name='lk_module_param')
            import c_char, c_ptr
            type(c_ptr), value :: module
            character(kind=c_char), intent(in) :: path(*)
        end function
        subroutine c_lk_param_changed(param) bind(C, name='lk_param_changed')
            import c_ptr
            type(c_ptr), value :: param
        end subroutine
        integer(c_int) function c_lk_load_weights(module, path, options) bind(C, name='lk_load_weights_with')
            import c_int, c_char, c_ptr
            type(c_ptr), value :: module, options
            character(kind=c_char), intent(in) :: path(*)
        end function
        type(c_ptr) function c_lk_module_state_dict(module) bind(C, name='lk_module_state_dict')
            import c_ptr
            type(c_ptr), value :: module
        end function
        integer(c_int) function c_lk_save_safetensors(path, dict) bind(C, name='lk_save_safetensors')
            import c_int, c_char, c_ptr
            character(kind=c_char), intent(in) :: path(*)
            type(c_ptr), value :: dict
        end function
        subroutine c_lk_state_dict_free(dict) bind(C, name='lk_state_dict_free')
            import c_ptr
            type(c_ptr), value :: dict
        end subroutine
        integer(c_int) function c_lk_tensor_copy(destination, source) bind(C, name='lk_tensor_copy')
            import c_int, c_ptr
            type(c_ptr), value :: destination, source
        end function
        subroutine c_lk_tensor_free(tensor) bind(C, name='lk_tensor_free')
            import c_ptr
            type(c_ptr), value :: tensor
        end subroutine

        ! mpi.h, sys/comm.h, sys/engine.h
        type(c_ptr) function c_lk_comm_from_mpi_handle(handle, library) bind(C, name='lk_comm_from_mpi_handle')
            import c_int, c_ptr
            integer(c_int), value :: handle, library
        end function
        subroutine c_lk_comm_free(comm) bind(C, name='lk_comm_free')
            import c_ptr
            type(c_ptr), value :: comm
        end subroutine
        type(c_ptr) function c_lk_engine_open(name, options) bind(C, name='lk_engine_open')
            import c_char, c_ptr, c_engine_options
            character(kind=c_char), intent(in) :: name(*)
            type(c_engine_options), intent(in) :: options
        end function
        subroutine c_lk_engine_close(engine) bind(C, name='lk_engine_close')
            import c_ptr
            type(c_ptr), value :: engine
        end subroutine

        ! optim.h
        integer(c_int) function c_lk_optimizer_group_count(optimizer) bind(C, name='lk_optimizer_group_count')
            import c_int, c_ptr
            type(c_ptr), value :: optimizer
        end function
        real(c_double) function c_lk_optimizer_lr(optimizer, group) bind(C, name='lk_optimizer_lr')
            import c_int, c_double, c_ptr
            type(c_ptr), value :: optimizer
            integer(c_int), value :: group
        end function
        subroutine c_lk_optimizer_set_lr(optimizer, group, lr) bind(C, name='lk_optimizer_set_lr')
            import c_int, c_double, c_ptr
            type(c_ptr), value :: optimizer
            integer(c_int), value :: group
            real(c_double), value :: lr
        end subroutine

        ! step.h
        type(c_ptr) function c_lk_step(options) bind(C, name='lk_step_with')
            import c_ptr, c_step_options
            type(c_step_options), intent(in) :: options
        end function
        subroutine c_lk_step_free(step) bind(C, name='lk_step_free')
            import c_ptr
            type(c_ptr), value :: step
        end subroutine
        integer(c_int) function c_lk_step_train(step, fields, count) bind(C, name='lk_step_train')
            import c_int, c_ptr, c_input
            type(c_ptr), value :: step
            type(c_input), intent(in) :: fields(*)
            integer(c_int), value :: count
        end function
        integer(c_int) function c_lk_step_evaluate(step, fields, count) bind(C, name='lk_step_evaluate')
            import c_int, c_ptr, c_input
            type(c_ptr), value :: step
            type(c_input), intent(in) :: fields(*)
            integer(c_int), value :: count
        end function
        real(c_double) function c_lk_step_loss(step) bind(C, name='lk_step_loss')
            import c_double, c_ptr
            type(c_ptr), value :: step
        end function
        real(c_double) function c_lk_step_grad_norm(step) bind(C, name='lk_step_grad_norm')
            import c_double, c_ptr
            type(c_ptr), value :: step
        end function
        type(c_ptr) function c_lk_step_output(step, name) bind(C, name='lk_step_output')
            import c_char, c_ptr
            type(c_ptr), value :: step
            character(kind=c_char), intent(in) :: name(*)
        end function
        integer(c_int) function c_lk_step_save(step, path, options) bind(C, name='lk_step_save_with')
            import c_int, c_char, c_ptr, c_file_options
            type(c_ptr), value :: step
            character(kind=c_char), intent(in) :: path(*)
            type(c_file_options), intent(in) :: options
        end function
        integer(c_int) function c_lk_step_restore(step, path, options) bind(C, name='lk_step_restore_with')
            import c_int, c_char, c_ptr, c_file_options
            type(c_ptr), value :: step
            character(kind=c_char), intent(in) :: path(*)
            type(c_file_options), intent(in) :: options
        end function

        ! predictor.h
        type(c_ptr) function c_lk_predictor(weights, options) bind(C, name='lk_predictor_with')
            import c_char, c_ptr, c_predictor_options
            character(kind=c_char), intent(in) :: weights(*)
            type(c_predictor_options), intent(in) :: options
        end function
        type(c_ptr) function c_lk_predictor_run(predictor, features) bind(C, name='lk_predictor_run')
            import c_ptr
            type(c_ptr), value :: predictor, features
        end function
        subroutine c_lk_predictor_free(predictor) bind(C, name='lk_predictor_free')
            import c_ptr
            type(c_ptr), value :: predictor
        end subroutine
    end interface

contains

    ! The sentence of this thread's last failure, or '' if nothing has failed.
    function lockstep_error() result(sentence)
        character(len=:), allocatable :: sentence
        character(kind=c_char), pointer :: letters(:)
        type(c_ptr) :: text
        integer :: i
        text = c_lk_error()
        call c_f_pointer(text, letters, [c_strlen(text)])
        allocate (character(len=size(letters)) :: sentence)
        do i = 1, size(letters)
            sentence(i:i) = letters(i)
        end do
    end function

    ! How every procedure ends: as MPI's do, with the status in ierror, or, without it, by stopping at a failure.
    subroutine report(status, ierror)
        integer, intent(in) :: status
        integer, intent(out), optional :: ierror
        if (present(ierror)) then
            ierror = status
        else if (status /= LK_OK) then
            write (error_unit, '(2a)') 'lockstep: ', lockstep_error()
            error stop 1
        end if
    end subroutine

    ! Sets the sentence of a failure that this module has found itself.
    integer function failure(status, sentence)
        integer, intent(in) :: status
        character(len=*), intent(in) :: sentence
        failure = c_lk_fail_text(int(status, c_int), sentence//c_null_char)
    end function

    ! Why a constructor of C returned NULL; LK_OK if it did not.
    integer function status_of(object)
        type(c_ptr), intent(in) :: object
        status_of = LK_OK
        if (.not. c_associated(object)) status_of = c_lk_error_status()
    end function

    ! Text as C has it, for fields of structs. It must outlive the struct.
    subroutine to_c(text, letters)
        character(len=*), intent(in) :: text
        character(kind=c_char), allocatable, intent(out) :: letters(:)
        integer :: i
        allocate (letters(len(text) + 1))
        do i = 1, len(text)
            letters(i) = text(i:i)
        end do
        letters(len(text) + 1) = c_null_char
    end subroutine

    ! Makes a component from its name ('ReLU') or its description ('{_target_: Conv1d, args: [1, 8, 3]}').
    subroutine make(text, kind, object, status)
        character(len=*), intent(in) :: text
        integer(c_int), intent(in) :: kind
        type(c_ptr), intent(out) :: object
        integer, intent(out) :: status
        if (index(adjustl(text), '{') == 1) then
            status = c_lk_component_make(trim(text)//c_null_char, c_null_ptr, 0_c_int, kind, object)
        else
            status = c_lk_component_make('{_target_: "'//trim(text)//'"}'//c_null_char, c_null_ptr, 0_c_int, kind, object)
        end if
    end subroutine

    ! A number as a config has it, with all its digits.
    function text_of(number) result(text)
        real(c_double), intent(in) :: number
        character(len=24) :: text
        write (text, '(es24.16e3)', decimal='point') number
    end function
end module
