! The module `lockstep`: PyTorch's numbers of tests/oracle/uneven_batches.py, whose file is the argument, from arrays of both kinds;
! arrays of every rank and layout; what is saved; and what is refused.
module cases
    use, intrinsic :: iso_fortran_env, only: real32, real64, int32, int64
    use lockstep
    implicit none
    integer, parameter :: ROWS = 38, BATCHES = 6, NUMBERS = BATCHES + 24 + 8 + 16 + 2
    integer :: failures = 0
contains

    subroutine expect(holds, what)
        logical, intent(in) :: holds
        character(len=*), intent(in) :: what
        if (holds) return
        failures = failures + 1
        print '(3a)', what, ' | ', lockstep_error()
    end subroutine

    subroutine expect_failure(status, wanted, piece)
        integer, intent(in) :: status, wanted
        character(len=*), intent(in) :: piece
        call expect(status == wanted .and. index(lockstep_error(), piece) > 0, piece)
    end subroutine

    real(real64) function pattern(start, i)
        integer, intent(in) :: start, i
        pattern = (modulo(start + 7*i, 11) - 5)/8.0_real64
    end function

    subroutine fill(values, start)
        real(real64), intent(out) :: values(:, :)
        integer, intent(in) :: start
        integer :: i, k
        do k = 1, size(values, 2)
            do i = 1, size(values, 1)
                values(i, k) = pattern(start, (k - 1)*size(values, 1) + i - 1)
            end do
        end do
    end subroutine

    ! The model of the oracle, built by calls.
    subroutine build(net, double)
        type(lk_model), intent(inout) :: net
        logical, intent(in) :: double
        real(real64), target :: w1(3, 8), b1(8, 1), w2(8, 2), b2(2, 1)
        call net%linear(3, 8); call net%tanh(); call net%linear(8, 2)
        if (double) call net%to(LK_F64)
        call fill(w1, 0); call fill(b1, 1); call fill(w2, 2); call fill(b2, 3)
        call net%set('0.weight', lk_tensor(w1)); call net%set('0.bias', lk_tensor(b1(:, 1)))
        call net%set('2.weight', lk_tensor(w2)); call net%set('2.bias', lk_tensor(b2(:, 1)))
    end subroutine

    subroutine read_weights(net, numbers)
        type(lk_model), intent(in) :: net
        real(real64), intent(out) :: numbers(:)
        real(real64), target :: w1(3, 8), b1(8), w2(8, 2), b2(2)
        call net%get('0.weight', lk_tensor(w1)); call net%get('0.bias', lk_tensor(b1))
        call net%get('2.weight', lk_tensor(w2)); call net%get('2.bias', lk_tensor(b2))
        numbers = [reshape(w1, [24]), b1, reshape(w2, [16]), b2]
    end subroutine

    ! One line of the golden file.
    subroutine equals_pytorch(kind, weighted, double, expected)
        character(len=*), intent(in) :: kind
        logical, intent(in) :: weighted, double
        real(real64), intent(in) :: expected(NUMBERS)
        type(lk_model) :: net
        type(lk_step) :: step
        real(real64), target :: x(3, ROWS), y(2, ROWS), w(ROWS)
        real(real32), target :: x4(3, ROWS), y4(2, ROWS), w4(ROWS)
        integer(int64), target :: classes(ROWS)
        type(lk_tensor) :: features, targets, weights
        real(real64) :: found(NUMBERS)
        character(len=20) :: loss
        integer :: i, k
        loss = 'MSELoss'
        if (kind == 'ce') loss = 'CrossEntropyLoss'
        call build(net, double)
        call step%create(net, loss=loss, optimizer='Adam', lr=0.01_real64, weighted=weighted, device='cpu', &
                         scheduler='{_target_: StepLR, step_size: 2, gamma: 0.5}')
        do i = 0, BATCHES - 1
            call fill(x, 3*i); call fill(y, 5*i + 1)
            w = [(modulo(k, 5)/4.0_real64, k=0, ROWS - 1)]
            classes = [(modulo(i + k, 2), k=0, ROWS - 1)]
            x4 = real(x, real32); y4 = real(y, real32); w4 = real(w, real32)
            if (double) then
                features = lk_tensor(x); targets = lk_tensor(y); weights = lk_tensor(w)
            else
                features = lk_tensor(x4); targets = lk_tensor(y4); weights = lk_tensor(w4)
            end if
            if (kind == 'ce') targets = lk_tensor(classes)
            if (weighted) then
                call step%train(features, targets, weights)
            else
                call step%train(features, targets)
            end if
            found(1 + i) = step%loss()
        end do
        call expect(abs(step%learning_rate() - 0.00125_real64) < 1e-15_real64, 'the learning rate after the schedule')
        call read_weights(net, found(BATCHES + 1:))
        call expect(maxval(abs(found - expected)) <= merge(1e-12_real64, 2e-6_real64, double), 'numbers of '//kind)
    end subroutine

    subroutine golden(path)
        character(len=*), intent(in) :: path
        real(real64) :: expected(NUMBERS)
        character(len=4) :: kind, dtype
        character(len=8000) :: line
        integer :: unit, status, weighted, lines
        lines = 0
        open (newunit=unit, file=path, status='old', action='read')
        do
            read (unit, '(a)', iostat=status) line
            if (status /= 0) exit
            read (line, *) kind, weighted, dtype, expected
            call equals_pytorch(trim(kind), weighted == 1, dtype == 'f64', expected)
            lines = lines + 1
        end do
        close (unit)
        call expect(lines == 8, 'eight lines of the golden file')
    end subroutine

    ! The same numbers in arrays of many layouts give the same answers.
    subroutine layouts()
        type(lk_model) :: net
        type(lk_step) :: step
        real(real64), target :: x(3, ROWS), big(9, 2*ROWS), turned(ROWS, 3), four(3, 2, 2, 8), wanted(2, ROWS), found(2, ROWS), &
            found4(2, 2, 2, 8), flipped(ROWS, 2)
        real(real32), target :: single(2, ROWS)
        real(real64), allocatable, target :: lower(:, :)
        integer(int32), target :: small(2)
        call build(net, .true.)
        call step%create(net, device='cpu')
        call fill(x, 4)
        call step%predict(lk_tensor(x), lk_tensor(wanted))
        big = 99
        big(2:8:3, 2*ROWS - 1:1:-2) = x
        call step%predict(lk_tensor(big(2:8:3, 2*ROWS - 1:1:-2)), lk_tensor(found))
        call expect(all(found == wanted), 'a section with strides, also below 0')
        turned = transpose(x)
        call step%predict(lk_tensor(turned, same_order=.true.), lk_tensor(flipped, same_order=.true.))
        call expect(all(transpose(flipped) == wanted), 'samples in the first dimension')
        allocate (lower(-1:1, 0:ROWS - 1))
        lower = x
        call step%predict(lk_tensor(lower), lk_tensor(single))
        call expect(maxval(abs(single - wanted)) < 1e-6, 'other bounds, and an answer of another kind')
        four = reshape(x(:, 1:32), [3, 2, 2, 8])
        call step%predict(lk_tensor(four), lk_tensor(found4))
        call expect(all(reshape(found4, [2, 32]) == wanted(:, 1:32)), 'four dimensions')
        call step%predict(lk_tensor(x(:, 1:1)), lk_tensor(found(:, 1:1)))
        call expect(all(found(:, 1) == wanted(:, 1)), 'one sample')
        small = 1
        associate (t => lk_tensor(small))
            call expect(t%c%dtype == LK_I32 .and. t%c%shape%rank == 1 .and. t%c%shape%dim(1) == 2, 'integers of 32 bits')
        end associate
    end subroutine

    subroutine train_some(step, count)
        type(lk_step), intent(inout) :: step
        integer, intent(in) :: count
        real(real64), target :: x(3, ROWS), y(2, ROWS)
        integer :: i
        do i = 1, count
            call fill(x, i); call fill(y, 2*i)
            call step%train(lk_tensor(x), lk_tensor(y))
        end do
    end subroutine

    ! A step that was saved goes on with the same bits, and its weights answer in a predictor.
    subroutine files()
        type(lk_model) :: net, other
        type(lk_step) :: step, later
        type(lk_predictor) :: predictor
        real(real64) :: one(50), two(50)
        real(real64), target :: x(3, ROWS), a(2, ROWS), b(2, ROWS), gradient(3, 8)
        integer :: unit
        call build(net, .true.)
        call step%create(net, loss='MSELoss', optimizer='Adam', clip_norm=0.1_real64, device='cpu')
        call train_some(step, 3)
        call expect(step%gradient_norm() > 0, 'the norm of the gradients')
        call net%gradient('0.weight', lk_tensor(gradient))
        call expect(any(abs(gradient) > 0) .and. norm2(gradient) < 0.1_real64, 'gradients')
        call step%save('fortran_step.safetensors')
        call train_some(step, 2)
        call read_weights(net, one)
        call other%linear(3, 8); call other%tanh(); call other%linear(8, 2); call other%to(LK_F64)
        call later%create(other, loss='MSELoss', optimizer='Adam', clip_norm=0.1_real64, device='cpu')
        call later%restore('fortran_step.safetensors')
        call other%free() ! the step keeps the module
        call train_some(later, 2)
        call later%save('fortran_later.safetensors')
        call step%restore('fortran_later.safetensors')
        call read_weights(net, two)
        call expect(all(one == two), 'a restored step')
        call step%set_learning_rate(0.5_real64)
        call expect(step%learning_rate() == 0.5_real64, 'a learning rate that was set')

        call net%save_weights('fortran_weights.safetensors')
        open (newunit=unit, file='fortran_model.yml', status='replace')
        write (unit, '(a)') '_target_: Sequential', 'args:', '  - {_target_: Linear, args: [3, 8]}', '  - Tanh', &
            '  - {_target_: Linear, args: [8, 2]}'
        close (unit)
        call other%from_config('fortran_model.yml')
        call expect(other%parameter_count() == 50, 'the model of a file')
        call other%to(LK_F64)
        call predictor%create('fortran_weights.safetensors', model=other, device='cpu', max_batch=7)
        call fill(x, 1)
        call step%predict(lk_tensor(x), lk_tensor(a))
        call predictor%run(lk_tensor(x), lk_tensor(b))
        call expect(maxval(abs(a - b)) < 1e-14_real64, 'a predictor')
    end subroutine

    subroutine refusals()
        type(lk_model) :: net, empty
        type(lk_step) :: step, unmade
        type(lk_predictor) :: predictor
        type(lk_comm) :: comm
        real(real64), target :: x(3, 4), y(2, 4), wrong(3, 3), w(4)
        integer :: e
        call fill(x, 1); call fill(y, 2); call fill(wrong, 3); w = 1
        call empty%to(LK_F64, ierror=e)
        call expect_failure(e, LK_ERR_INVALID, 'it is empty: add layers')
        call empty%add('Tahn', ierror=e)
        call expect_failure(e, LK_ERR_CONFIG, 'did you mean "Tanh"')
        call empty%from_config('nowhere.yml', ierror=e)
        call expect_failure(e, LK_ERR_NOT_FOUND, 'nowhere.yml')
        call unmade%train(lk_tensor(x), lk_tensor(y), ierror=e)
        call expect_failure(e, LK_ERR_INVALID, 'call create on it')
        call unmade%create(empty, ierror=e)
        call expect_failure(e, LK_ERR_INVALID, 'it is empty: add layers')
        call build(net, .true.)
        call unmade%create(net, loss='MSELoss', lr=1.0_real64, ierror=e)
        call expect_failure(e, LK_ERR_INVALID, 'lr: there is no optimizer')
        call unmade%create(net, loss='MSELoss', optimizer='Adma', ierror=e)
        call expect_failure(e, LK_ERR_CONFIG, 'Adma')
        call unmade%create(net, loss='Adam', ierror=e)
        call expect_failure(e, LK_ERR_INVALID, 'Adam is an optimizer, not a criterion')
        call unmade%create(net, optimizer='{_target_: SGD, lr: 0.1}', lr=1.0_real64, ierror=e)
        call expect_failure(e, LK_ERR_INVALID, 'write it into the description of the optimizer')
        call unmade%create(net, threads=-1, ierror=e)
        call expect_failure(e, LK_ERR_RANGE, 'threads')
        call unmade%create(net, device='gpu', ierror=e)
        call expect_failure(e, LK_ERR_CONFIG, '"gpu"')
        call unmade%create(net, comm=comm, ierror=e)
        call expect_failure(e, LK_ERR_INVALID, 'call from_mpi on it')
        call comm%from_mpi(0, ierror=e)
        call expect_failure(e, LK_ERR_INVALID, 'MPI')
        call expect(comm%rank() == -1 .and. comm%size() == 0, 'a comm that has not been made')
        call step%create(net, loss='MSELoss', optimizer='{_target_: SGD, lr: 0.1}', device='cpu')
        call step%train(lk_tensor(x), lk_tensor(wrong), ierror=e)
        call expect_failure(e, LK_ERR_SHAPE, 'does not fit')
        call step%train(lk_tensor(x), lk_tensor(y), lk_tensor(w), ierror=e)
        call expect_failure(e, LK_ERR_INVALID, 'weighted=.true.')
        call step%train(lk_tensor(real32_of(x)), lk_tensor(y), ierror=e)
        call expect_failure(e, LK_ERR_DTYPE, 'f32')
        call step%predict(lk_tensor(x), lk_tensor(wrong), ierror=e)
        call expect_failure(e, LK_ERR_SHAPE, '')
        call step%restore('nowhere.safetensors', ierror=e)
        call expect_failure(e, LK_ERR_NOT_FOUND, 'nowhere.safetensors')
        call net%add('ReLU', ierror=e)
        call net%get('3.weight', lk_tensor(x), ierror=e)
        call expect_failure(e, LK_ERR_NOT_FOUND, '3.weight')
        call predictor%create('nowhere.safetensors', model=net, ierror=e)
        call expect_failure(e, LK_ERR_NOT_FOUND, 'nowhere.safetensors')
        call predictor%run(lk_tensor(x), lk_tensor(y), ierror=e)
        call expect_failure(e, LK_ERR_INVALID, 'call create on it')
    end subroutine

    function real32_of(x) result(single)
        real(real64), intent(in) :: x(:, :)
        real(real32), pointer :: single(:, :)
        real(real32), allocatable, target, save :: kept(:, :)
        kept = real(x, real32)
        single => kept
    end function
end module

program test_module
    use cases
    implicit none
    character(len=1000) :: path
    call get_command_argument(1, path)
    call golden(trim(path))
    call layouts()
    call files()
    call refusals()
    if (failures > 0) error stop 1
end program
