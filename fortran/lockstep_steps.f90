! lk_comm: ranks that train together. lk_step: what happens with one batch.
!
! Free steps and comms before MPI_Finalize: variables of the main program are never finalized. A step keeps its comm and its model
! alive, so they may be freed in any order. Neither can be assigned, only passed.
module lockstep_steps
    use lockstep_c
    use lockstep_arrays
    use lockstep_models
    implicit none
    private
    public :: lk_comm, lk_step

    ! A comm and how many objects of Fortran hold it.
    type :: held_comm
        type(c_ptr) :: comm = c_null_ptr
        integer :: holders = 0
    end type

    type :: lk_comm
        type(held_comm), pointer, private :: held => null()
    contains
        procedure :: from_mpi => comm_from_mpi
        procedure :: rank => comm_rank
        procedure :: size => comm_size
        procedure :: free => comm_free
        procedure, private :: refuse => comm_refuse
        generic :: assignment(=) => refuse
        final :: comm_finish
    end type

    type :: lk_step
        type(c_ptr), private :: step = c_null_ptr, engine = c_null_ptr, optimizer = c_null_ptr
        type(held_comm), pointer, private :: held => null()
        logical, private :: weighted = .false.
    contains
        procedure :: create => step_create
        procedure :: train => step_train
        procedure :: evaluate => step_evaluate
        procedure :: predict => step_predict
        procedure :: output => step_output
        procedure :: loss => step_loss
        procedure :: gradient_norm => step_gradient_norm
        procedure :: learning_rate => step_learning_rate
        procedure :: set_learning_rate => step_set_learning_rate
        procedure :: save => step_save
        procedure :: restore => step_restore
        procedure :: free => step_free
        procedure, private :: refuse => step_refuse
        generic :: assignment(=) => refuse
        final :: step_finish
    end type

    character(kind=c_char), target, save :: features_key(9) = ['f', 'e', 'a', 't', 'u', 'r', 'e', 's', c_null_char], &
        targets_key(8) = ['t', 'a', 'r', 'g', 'e', 't', 's', c_null_char], &
        weights_key(8) = ['w', 'e', 'i', 'g', 'h', 't', 's', c_null_char]

contains

    ! ---- lk_comm ----

    ! Over a duplicate of this communicator: its integer handle, or %MPI_VAL of a type(MPI_Comm) of mpi_f08. Collective.
    subroutine comm_from_mpi(self, handle, ierror)
        class(lk_comm), intent(inout) :: self
        integer, intent(in) :: handle
        integer, intent(out), optional :: ierror
        type(c_ptr) :: comm
        call self%free()
        comm = c_lk_comm_from_mpi_handle(int(handle, c_int), 0_c_int)
        if (c_associated(comm)) then
            allocate (self%held)
            self%held%comm = comm
            self%held%holders = 1
        end if
        call report(status_of(comm), ierror)
    end subroutine

    ! From 0; -1 of a comm that has not been made.
    integer function comm_rank(self)
        class(lk_comm), intent(in) :: self
        type(c_comm), pointer :: comm
        comm_rank = -1
        if (.not. associated(self%held)) return
        call c_f_pointer(self%held%comm, comm)
        comm_rank = comm%rank
    end function

    integer function comm_size(self)
        class(lk_comm), intent(in) :: self
        type(c_comm), pointer :: comm
        comm_size = 0
        if (.not. associated(self%held)) return
        call c_f_pointer(self%held%comm, comm)
        comm_size = comm%size
    end function

    ! Gives the comm back; it ends when no step uses it any more. Collective.
    subroutine comm_free(self)
        class(lk_comm), intent(inout) :: self
        call release(self%held)
    end subroutine

    subroutine release(held)
        type(held_comm), pointer, intent(inout) :: held
        if (.not. associated(held)) return
        held%holders = held%holders - 1
        if (held%holders == 0) then
            call c_lk_comm_free(held%comm)
            deallocate (held)
        end if
        nullify (held)
    end subroutine

    impure elemental subroutine comm_finish(self)
        type(lk_comm), intent(inout) :: self
        call self%free()
    end subroutine

    subroutine comm_refuse(self, other)
        class(lk_comm), intent(inout) :: self
        class(lk_comm), intent(in) :: other
        integer :: status
        status = failure(LK_ERR_INVALID, 'lk_comm: a comm cannot be assigned: pass it as an argument')
        call report(status)
    end subroutine

    ! ---- lk_step: making one ----

    ! A step of a model. Without an optimizer it only predicts. loss, optimizer and scheduler are names ('MSELoss', 'Adam') or as
    ! a config has them ('{_target_: StepLR, step_size: 30}'); lr is PyTorch's default if it is left out.
    !   device    'auto', 'cpu', 'cuda', ...       threads   1; 0: the cores that this process may run on
    !   precision LK_F32, LK_BF16, LK_F16          comm      ranks that train together; all of them make the step
    !   uneven    ranks may have different numbers of samples, also none: all samples count alike
    !   weighted  train and evaluate get a weight for each sample
    subroutine step_create(self, model, loss, optimizer, lr, scheduler, comm, uneven, weighted, device, threads, precision, &
                           clip_norm, clip_value, accumulation_steps, allow_nan, ierror)
        class(lk_step), intent(inout) :: self
        type(lk_model), intent(in) :: model
        character(len=*), intent(in), optional :: loss, optimizer, scheduler, device
        real(c_double), intent(in), optional :: lr, clip_norm, clip_value
        type(lk_comm), intent(in), optional :: comm
        logical, intent(in), optional :: uneven, weighted, allow_nan
        integer, intent(in), optional :: threads, precision, accumulation_steps
        integer, intent(out), optional :: ierror
        type(c_step_options) :: options
        integer :: status
        call self%free()
        options%struct_size = c_sizeof(options)
        if (present(precision)) options%precision = int(precision, c_int)
        if (present(clip_norm)) options%clip_norm = clip_norm
        if (present(clip_value)) options%clip_value = clip_value
        if (present(accumulation_steps)) options%accumulation_steps = int(accumulation_steps, c_int)
        if (present(uneven)) options%uneven_batches = uneven
        if (present(allow_nan)) options%allow_nan = allow_nan
        if (present(weighted)) self%weighted = weighted
        if (self%weighted) options%weight_key = c_loc(weights_key)
        options%owned = .true._c_bool
        status = LK_OK
        if (present(lr) .and. .not. present(optimizer)) &
            status = failure(LK_ERR_INVALID, 'lk_step%create: lr: there is no optimizer')
        if (status == LK_OK .and. present(comm)) call hold_comm(self, comm, options, status)
        if (status == LK_OK) call open_engine(options, device, threads, status)
        if (status == LK_OK) call make_parts(options, loss, optimizer, lr, scheduler, status)
        if (status == LK_OK) then
            options%model = model%share()
            status = status_of(options%model)
        end if
        if (status == LK_OK) then
            self%step = c_lk_step(options)
            status = status_of(self%step)
        end if
        self%engine = options%engine
        self%optimizer = options%optimizer
        if (status /= LK_OK) call drop(self, options)
        call report(status, ierror)
    end subroutine

    subroutine hold_comm(self, comm, options, status)
        class(lk_step), intent(inout) :: self
        type(lk_comm), intent(in) :: comm
        type(c_step_options), intent(inout) :: options
        integer, intent(out) :: status
        status = LK_OK
        if (.not. associated(comm%held)) then
            status = failure(LK_ERR_INVALID, 'lk_step%create: comm: it has not been made: call from_mpi on it')
            return
        end if
        self%held => comm%held
        self%held%holders = self%held%holders + 1
        options%comm = self%held%comm
    end subroutine

    ! A guest takes one thread unless its host gives it more.
    subroutine open_engine(options, device, threads, status)
        type(c_step_options), intent(inout) :: options
        character(len=*), intent(in), optional :: device
        integer, intent(in), optional :: threads
        integer, intent(out) :: status
        type(c_engine_options) :: engine
        engine%struct_size = c_sizeof(engine)
        engine%thread_count = 1
        if (present(threads)) engine%thread_count = int(threads, c_int)
        if (engine%thread_count < 0) then
            status = failure(LK_ERR_RANGE, 'lk_step%create: threads: expected at least 0')
            return
        end if
        if (present(device)) then
            options%engine = c_lk_engine_open(trim(device)//c_null_char, engine)
        else
            options%engine = c_lk_engine_open('auto'//c_null_char, engine)
        end if
        status = status_of(options%engine)
    end subroutine

    subroutine make_parts(options, loss, optimizer, lr, scheduler, status)
        type(c_step_options), intent(inout) :: options
        character(len=*), intent(in), optional :: loss, optimizer, scheduler
        real(c_double), intent(in), optional :: lr
        integer, intent(out) :: status
        status = LK_OK
        if (present(loss)) call make(loss, KIND_CRITERION, options%criterion, status)
        if (status == LK_OK .and. present(optimizer)) then
            if (.not. present(lr)) then
                call make(optimizer, KIND_OPTIMIZER, options%optimizer, status)
            else if (index(optimizer, '{') == 0) then
                call make('{_target_: '//trim(optimizer)//', lr: '//trim(text_of(lr))//'}', KIND_OPTIMIZER, &
                          options%optimizer, status)
            else
                status = failure(LK_ERR_INVALID, 'lk_step%create: lr: write it into the description of the optimizer')
            end if
        end if
        if (status == LK_OK .and. present(scheduler)) call make(scheduler, KIND_SCHEDULER, options%scheduler, status)
    end subroutine

    ! What a constructor that failed has left.
    subroutine drop(self, options)
        class(lk_step), intent(inout) :: self
        type(c_step_options), intent(in) :: options
        if (c_associated(options%scheduler)) call c_lk_component_dispose(KIND_SCHEDULER, options%scheduler)
        if (c_associated(options%optimizer)) call c_lk_component_dispose(KIND_OPTIMIZER, options%optimizer)
        if (c_associated(options%criterion)) call c_lk_component_dispose(KIND_CRITERION, options%criterion)
        if (c_associated(options%model)) call c_lk_module_free(options%model)
        call self%free()
    end subroutine

    ! ---- lk_step: batches ----

    ! Forward, loss, backward and, every accumulation_steps batches, the update. The last dimension counts the samples.
    subroutine step_train(self, features, targets, weights, ierror)
        class(lk_step), intent(inout) :: self
        type(lk_tensor), intent(in) :: features, targets
        type(lk_tensor), intent(in), optional :: weights
        integer, intent(out), optional :: ierror
        integer :: status
        call run(self, .true., features, targets, weights, status)
        call report(status, ierror)
    end subroutine

    ! Forward and, if there are targets, the loss. Dropout is off.
    subroutine step_evaluate(self, features, targets, weights, ierror)
        class(lk_step), intent(inout) :: self
        type(lk_tensor), intent(in) :: features
        type(lk_tensor), intent(in), optional :: targets, weights
        integer, intent(out), optional :: ierror
        integer :: status
        call run(self, .false., features, targets, weights, status)
        call report(status, ierror)
    end subroutine

    subroutine run(self, training, features, targets, weights, status)
        class(lk_step), intent(inout) :: self
        logical, intent(in) :: training
        type(lk_tensor), intent(in), target :: features
        type(lk_tensor), intent(in), target, optional :: targets, weights
        integer, intent(out) :: status
        type(c_input) :: fields(3)
        integer(c_int) :: count
        status = check(self)
        if (status == LK_OK .and. (present(weights) .neqv. (self%weighted .and. present(targets)))) &
            status = failure(LK_ERR_INVALID, 'lk_step: weights go with a step that was created with weighted=.true.')
        if (status /= LK_OK) return
        count = 1
        fields(1) = c_input(c_loc(features_key), c_loc(features%c))
        if (present(targets)) then
            count = 2
            fields(2) = c_input(c_loc(targets_key), c_loc(targets%c))
        end if
        if (present(weights)) then
            count = count + 1_c_int
            fields(count) = c_input(c_loc(weights_key), c_loc(weights%c))
        end if
        if (training) then
            status = c_lk_step_train(self%step, fields, count)
        else
            status = c_lk_step_evaluate(self%step, fields, count)
        end if
    end subroutine

    ! Evaluates and copies what comes out into an array, whose kind may be another than the model's.
    subroutine step_predict(self, features, prediction, ierror)
        class(lk_step), intent(inout) :: self
        type(lk_tensor), intent(in) :: features, prediction
        integer, intent(out), optional :: ierror
        integer :: status
        call run(self, .false., features, status=status)
        if (status == LK_OK) call self%output(prediction, status)
        call report(status, ierror)
    end subroutine

    ! Copies what came out of the model in the last batch into an array.
    subroutine step_output(self, prediction, ierror)
        class(lk_step), intent(inout) :: self
        type(lk_tensor), intent(in), target :: prediction
        integer, intent(out), optional :: ierror
        type(c_ptr) :: output
        integer :: status
        status = check(self)
        if (status == LK_OK) then
            output = c_lk_step_output(self%step, 'logits'//c_null_char)
            status = status_of(output)
        end if
        if (status == LK_OK) status = c_lk_tensor_copy(c_loc(prediction%c), output)
        call report(status, ierror)
    end subroutine

    ! The loss of the last batch; 0 if there was none.
    real(c_double) function step_loss(self)
        class(lk_step), intent(in) :: self
        step_loss = 0
        if (c_associated(self%step)) step_loss = c_lk_step_loss(self%step)
    end function

    ! The norm of the gradients before clipping, if clip_norm is set.
    real(c_double) function step_gradient_norm(self)
        class(lk_step), intent(in) :: self
        step_gradient_norm = 0
        if (c_associated(self%step)) step_gradient_norm = c_lk_step_grad_norm(self%step)
    end function

    ! 0 without an optimizer.
    real(c_double) function step_learning_rate(self)
        class(lk_step), intent(in) :: self
        step_learning_rate = 0
        if (c_associated(self%optimizer)) &
            step_learning_rate = c_lk_optimizer_lr(self%optimizer, c_lk_optimizer_group_count(self%optimizer) - 1_c_int)
    end function

    ! Sets it for all parameters.
    subroutine step_set_learning_rate(self, lr, ierror)
        class(lk_step), intent(inout) :: self
        real(c_double), intent(in) :: lr
        integer, intent(out), optional :: ierror
        integer(c_int) :: group
        integer :: status
        status = check(self)
        if (status == LK_OK .and. .not. c_associated(self%optimizer)) &
            status = failure(LK_ERR_INVALID, 'lk_step%set_learning_rate: the step has no optimizer')
        if (status == LK_OK) then
            do group = 0, c_lk_optimizer_group_count(self%optimizer) - 1_c_int
                call c_lk_optimizer_set_lr(self%optimizer, group, lr)
            end do
        end if
        call report(status, ierror)
    end subroutine

    ! All that later batches depend on: see lk_step_save in step.h. With collective, all ranks of the comm call it, and there is
    ! one file; otherwise each rank has its own.
    subroutine step_save(self, path, collective, ierror)
        class(lk_step), intent(inout) :: self
        character(len=*), intent(in) :: path
        logical, intent(in), optional :: collective
        integer, intent(out), optional :: ierror
        integer :: status
        status = check(self)
        if (status == LK_OK) status = c_lk_step_save(self%step, trim(path)//c_null_char, file_options(collective))
        call report(status, ierror)
    end subroutine

    subroutine step_restore(self, path, collective, ierror)
        class(lk_step), intent(inout) :: self
        character(len=*), intent(in) :: path
        logical, intent(in), optional :: collective
        integer, intent(out), optional :: ierror
        integer :: status
        status = check(self)
        if (status == LK_OK) status = c_lk_step_restore(self%step, trim(path)//c_null_char, file_options(collective))
        call report(status, ierror)
    end subroutine

    type(c_file_options) function file_options(collective)
        logical, intent(in), optional :: collective
        file_options%struct_size = c_sizeof(file_options)
        if (present(collective)) file_options%collective = collective
    end function

    ! ---- lk_step: its end ----

    integer function check(self)
        class(lk_step), intent(in) :: self
        check = LK_OK
        if (.not. c_associated(self%step)) check = failure(LK_ERR_INVALID, 'lk_step: it has not been made: call create on it')
    end function

    subroutine step_free(self)
        class(lk_step), intent(inout) :: self
        if (c_associated(self%step)) call c_lk_step_free(self%step)
        if (c_associated(self%engine)) call c_lk_engine_close(self%engine)
        call release(self%held)
        self%step = c_null_ptr
        self%engine = c_null_ptr
        self%optimizer = c_null_ptr
        self%weighted = .false.
    end subroutine

    impure elemental subroutine step_finish(self)
        type(lk_step), intent(inout) :: self
        call self%free()
    end subroutine

    subroutine step_refuse(self, other)
        class(lk_step), intent(inout) :: self
        class(lk_step), intent(in) :: other
        integer :: status
        status = failure(LK_ERR_INVALID, 'lk_step: a step cannot be assigned: pass it as an argument')
        call report(status)
    end subroutine
end module
