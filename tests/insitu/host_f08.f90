! A program with mpi_f08 whose four ranks have 1, 7, 30 and no rows of the batches of tests/oracle/uneven_batches.py. Its losses
! are PyTorch's of one process. The argument is the golden file.
program host_f08
    use, intrinsic :: iso_fortran_env, only: real64
    use mpi_f08
    use lockstep
    implicit none
    integer, parameter :: begins(0:4) = [0, 1, 8, 38, 38], BATCHES = 6
    type(MPI_Comm) :: group
    type(lk_model) :: net
    type(lk_comm) :: comm
    type(lk_step) :: step
    real(real64), allocatable, target :: x(:, :), y(:, :)
    real(real64), target :: w1(3, 8), b1(8), w2(8, 2), b2(2)
    real(real64) :: expected(BATCHES)
    character(len=1000) :: path
    integer :: rank, i, rows, status

    call MPI_Init()
    call MPI_Comm_dup(MPI_COMM_WORLD, group)
    call comm%from_mpi(group%MPI_VAL)
    rank = comm%rank()
    if (comm%size() /= 4) error stop 'expected four ranks'
    call get_command_argument(1, path)
    call read_golden(trim(path))

    w1 = reshape([(pattern(0, i), i=0, 23)], [3, 8]); b1 = [(pattern(1, i), i=0, 7)]
    w2 = reshape([(pattern(2, i), i=0, 15)], [8, 2]); b2 = [(pattern(3, i), i=0, 1)]
    call net%linear(3, 8); call net%tanh(); call net%linear(8, 2); call net%to(LK_F64)
    call net%set('0.weight', lk_tensor(w1)); call net%set('0.bias', lk_tensor(b1))
    call net%set('2.weight', lk_tensor(w2)); call net%set('2.bias', lk_tensor(b2))
    call step%create(net, loss='MSELoss', optimizer='Adam', lr=0.01_real64, comm=comm, uneven=.true., device='cpu', &
                     scheduler='{_target_: StepLR, step_size: 2, gamma: 0.5}')
    call comm%free() ! the step keeps it
    rows = begins(rank + 1) - begins(rank)
    allocate (x(3, rows), y(2, rows))
    do i = 0, BATCHES - 1
        x = reshape(part(3*i, 3), [3, rows])
        y = reshape(part(5*i + 1, 2), [2, rows])
        call step%train(lk_tensor(x), lk_tensor(y), ierror=status)
        if (status /= LK_OK) error stop 'a batch failed'
        if (abs(step%loss() - expected(1 + i)) > 1e-12_real64) error stop 'a loss is not that of one process'
    end do
    call step%free()
    call MPI_Comm_free(group)
    call MPI_Finalize()

contains

    real(real64) function pattern(start, i)
        integer, intent(in) :: start, i
        pattern = (modulo(start + 7*i, 11) - 5)/8.0_real64
    end function

    ! The numbers of this rank's rows.
    function part(start, width) result(numbers)
        integer, intent(in) :: start, width
        real(real64) :: numbers(width*rows)
        integer :: k
        numbers = [(pattern(start, begins(rank)*width + k), k=0, width*rows - 1)]
    end function

    subroutine read_golden(name)
        character(len=*), intent(in) :: name
        character(len=8000) :: line
        integer :: unit
        open (newunit=unit, file=name, status='old', action='read')
        do
            read (unit, '(a)') line
            if (line(1:9) == 'mse 0 f64') exit
        end do
        read (line(10:), *) expected
        close (unit)
    end subroutine
end program
