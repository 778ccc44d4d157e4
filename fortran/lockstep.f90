! The module `lockstep`: training and inference inside of your own Fortran program. docs/guides/in-situ.md shows how.
!
!     call lk_manual_seed(42)
!     call net%linear(8, 32); call net%tanh(); call net%linear(32, 1)
!     call step%create(net, loss='MSELoss', optimizer='Adam', lr=1d-3)
!     do i = 1, 100
!         call step%train(lk_tensor(x), lk_tensor(y))          ! real, target :: x(8, 32), y(1, 32)
!         print *, step%loss()
!     end do
!
! Every procedure that can fail has an optional last argument ierror, as MPI's have: LK_OK or why it failed, and lockstep_error()
! is the sentence. Without ierror a failure writes the sentence to the error unit and stops the program.
!
! Objects end by themselves when they go out of scope, or when free is called on them. Threads: as in C, an object belongs to one
! thread, and any number of threads may call the same predictor.
module lockstep
    use lockstep_c, only: lockstep_error, report, failure, status_of, to_c, c_predictor_options, c_lk_predictor, &
        c_lk_predictor_run, c_lk_predictor_free, c_lk_tensor_copy, c_lk_tensor_free, LK_OK, LK_ERR_INVALID, LK_ERR_SHAPE, &
        LK_ERR_DTYPE, LK_ERR_RANGE, LK_ERR_NOMEM, LK_ERR_IO, LK_ERR_NOT_FOUND, LK_ERR_FORMAT, LK_ERR_CONFIG, &
        LK_ERR_UNSUPPORTED, LK_ERR_NAN, LK_ERR_TIMEOUT, LK_ERR_PEER, LK_ERR_STOPPED, LK_ERR_DEVICE, LK_F32, LK_F64, LK_BF16, &
        LK_F16, LK_I32, LK_I64
    use lockstep_arrays, only: lk_tensor
    use lockstep_models, only: lk_model, lk_manual_seed
    use lockstep_steps, only: lk_comm, lk_step
    use, intrinsic :: iso_c_binding
    implicit none
    private
    public :: lk_tensor, lk_model, lk_manual_seed, lk_comm, lk_step, lk_predictor, lockstep_error
    public :: LK_OK, LK_ERR_INVALID, LK_ERR_SHAPE, LK_ERR_DTYPE, LK_ERR_RANGE, LK_ERR_NOMEM, LK_ERR_IO, LK_ERR_NOT_FOUND, &
        LK_ERR_FORMAT, LK_ERR_CONFIG, LK_ERR_UNSUPPORTED, LK_ERR_NAN, LK_ERR_TIMEOUT, LK_ERR_PEER, LK_ERR_STOPPED, &
        LK_ERR_DEVICE, LK_F32, LK_F64, LK_BF16, LK_F16, LK_I32, LK_I64

    ! A trained model that answers: weights from a file, and a model or the config that it was trained with.
    type :: lk_predictor
        type(c_ptr), private :: predictor = c_null_ptr
    contains
        procedure :: create => predictor_create
        procedure :: run => predictor_run
        procedure :: free => predictor_free
        procedure, private :: refuse => predictor_refuse
        generic :: assignment(=) => refuse
        final :: predictor_finish
    end type

contains

    ! Either model, of which the predictor gets a copy, or config. threads: 1; 0: the cores that this process may run on.
    subroutine predictor_create(self, weights, model, config, device, threads, precision, max_batch, ierror)
        class(lk_predictor), intent(inout) :: self
        character(len=*), intent(in) :: weights
        type(lk_model), intent(in), optional :: model
        character(len=*), intent(in), optional :: config, device
        integer, intent(in), optional :: threads, precision, max_batch
        integer, intent(out), optional :: ierror
        character(kind=c_char), allocatable, target :: config_text(:), device_text(:)
        type(c_predictor_options) :: options
        integer :: status
        call self%free()
        status = LK_OK
        options%struct_size = c_sizeof(options)
        options%thread_count = 1
        if (present(threads)) options%thread_count = int(threads, c_int)
        if (present(precision)) options%precision = int(precision, c_int)
        if (present(max_batch)) options%max_batch = int(max_batch, c_int64_t)
        if (present(config)) then
            call to_c(trim(config), config_text)
            options%config = c_loc(config_text)
        end if
        if (present(device)) then
            call to_c(trim(device), device_text)
            options%device = c_loc(device_text)
        end if
        if (present(model)) then
            options%model = model%copy()
            status = status_of(options%model)
        end if
        if (status == LK_OK) then
            self%predictor = c_lk_predictor(trim(weights)//c_null_char, options)
            status = status_of(self%predictor)
        end if
        call report(status, ierror)
    end subroutine

    ! The model's output for a batch of any size, copied into an array of the same number of samples.
    subroutine predictor_run(self, features, prediction, ierror)
        class(lk_predictor), intent(in) :: self
        type(lk_tensor), intent(in), target :: features, prediction
        integer, intent(out), optional :: ierror
        type(c_ptr) :: output
        integer :: status
        if (.not. c_associated(self%predictor)) then
            call report(failure(LK_ERR_INVALID, 'lk_predictor: it has not been made: call create on it'), ierror)
            return
        end if
        output = c_lk_predictor_run(self%predictor, c_loc(features%c))
        status = status_of(output)
        if (status == LK_OK) then
            status = c_lk_tensor_copy(c_loc(prediction%c), output)
            call c_lk_tensor_free(output)
        end if
        call report(status, ierror)
    end subroutine

    subroutine predictor_free(self)
        class(lk_predictor), intent(inout) :: self
        if (c_associated(self%predictor)) call c_lk_predictor_free(self%predictor)
        self%predictor = c_null_ptr
    end subroutine

    impure elemental subroutine predictor_finish(self)
        type(lk_predictor), intent(inout) :: self
        call self%free()
    end subroutine

    subroutine predictor_refuse(self, other)
        class(lk_predictor), intent(inout) :: self
        class(lk_predictor), intent(in) :: other
        integer :: status
        status = failure(LK_ERR_INVALID, 'lk_predictor: a predictor cannot be assigned: pass it as an argument')
        call report(status)
    end subroutine
end module
