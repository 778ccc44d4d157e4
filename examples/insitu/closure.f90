! A solver that learns while it runs: u_t + u_x = NU u_xx on a ring, on MPI ranks.
!
!     mpifort closure.f90 $(pkg-config --cflags --libs lockstep-fortran) -o closure
!     mpirun -n 4 ./closure            300 time steps
!     mpirun -n 4 ./closure 0 100      the first 100, and then, in another job,
!     mpirun -n 4 ./closure 100 300    the rest, with the same bits
!
! A fine grid resolves the solution, and a coarse grid of 64 cells does not: its upwind scheme smears it. A network learns, from
! five neighbouring cells, what the coarse scheme gets wrong in one time step. The first half of the ranks trains it, on a
! communicator of their own, with the cells that they hold in memory. At the end all ranks use it on the coarse grid. closure.c is
! the same program in C.
module solver
    use, intrinsic :: iso_fortran_env, only: real64
    use mpi
    use lockstep
    implicit none

    integer, parameter :: COARSE = 64, RATIO = 8, SUBSTEPS = 16, WIDTH = 5, HIDDEN = 16, REPEATS = 4, FORECAST_STEPS = 32
    real(real64), parameter :: NU = 1e-3_real64, DT = 0.5_real64/COARSE

    ! What a rank holds: its part of both grids, with cells of its neighbours around it.
    integer :: rank, ranks, cells, ierr
    real(real64), allocatable :: fine(:), plain(:), closed(:)
    ! What the network gets, (WIDTH, cells), and should answer, (1, cells).
    real(real64), allocatable, target :: x(:, :), y(:, :)

contains

    ! Fills `halo` cells at each end of v, which has `count` cells between them.
    subroutine exchange(v, count, halo)
        real(real64), intent(inout) :: v(:)
        integer, intent(in) :: count, halo
        real(real64) :: sent(halo), got(halo)
        integer :: left, right
        left = modulo(rank - 1, ranks)
        right = modulo(rank + 1, ranks)
        sent = v(count + 1:count + halo)
        call MPI_Sendrecv(sent, halo, MPI_DOUBLE_PRECISION, right, 1, got, halo, MPI_DOUBLE_PRECISION, left, 1, &
                          MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
        v(1:halo) = got
        sent = v(halo + 1:2*halo)
        call MPI_Sendrecv(sent, halo, MPI_DOUBLE_PRECISION, left, 2, got, halo, MPI_DOUBLE_PRECISION, right, 2, &
                          MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
        v(halo + count + 1:2*halo + count) = got
    end subroutine

    ! One upwind step of `step` for the cells from `begin` to `end`, of width `h`.
    subroutine advance(v, begin, end, h, step)
        real(real64), intent(inout) :: v(:)
        integer, intent(in) :: begin, end
        real(real64), intent(in) :: h, step
        real(real64) :: c, d, before, here
        integer :: i
        c = step/h
        d = NU*step/(h*h)
        before = v(begin - 1)
        do i = begin, end
            here = v(i)
            v(i) = (here - c*(here - before)) + d*((v(i + 1) - 2*here) + before)
            before = here
        end do
    end subroutine

    ! The fine grid by one time step of the coarse one. As many cells of the neighbours are fetched as there are substeps; each of
    ! them needs one less.
    subroutine advance_fine()
        integer :: i
        call exchange(fine, RATIO*cells, SUBSTEPS)
        do i = 1, SUBSTEPS
            call advance(fine, i + 1, RATIO*cells + 2*SUBSTEPS - i, 1.0_real64/(COARSE*RATIO), DT/SUBSTEPS)
        end do
    end subroutine

    ! A coarse grid by one time step; its cells of the neighbours are up to date.
    subroutine advance_coarse(v)
        real(real64), intent(inout) :: v(:)
        call advance(v, 3, 2 + cells, 1.0_real64/COARSE, DT)
    end subroutine

    ! The mean of the fine cells below a coarse one.
    real(real64) function mean_below(cell)
        integer, intent(in) :: cell
        integer :: k
        mean_below = 0
        do k = 1, RATIO
            mean_below = mean_below + fine(SUBSTEPS + (cell - 1)*RATIO + k)
        end do
        mean_below = mean_below/RATIO
    end function

    subroutine restrict_to(v)
        real(real64), intent(inout) :: v(:)
        integer :: i
        do i = 1, cells
            v(2 + i) = mean_below(i)
        end do
    end subroutine

    ! The five cells around each cell.
    subroutine gather(v)
        real(real64), intent(inout) :: v(:)
        integer :: i
        call exchange(v, cells, 2)
        do i = 1, cells
            x(:, i) = v(i:i + WIDTH - 1)
        end do
    end subroutine

    ! A smooth wave of period 1.
    real(real64) function wave(x)
        real(real64), intent(in) :: x
        real(real64) :: at
        at = x - int(x)
        wave = (16*(at*(1 - at)))*(at*(1 - at))
    end function

    subroutine start()
        real(real64) :: at
        integer :: i
        do i = 1, RATIO*cells
            at = (rank*RATIO*cells + (i - 1) + 0.5_real64)/(COARSE*RATIO)
            fine(SUBSTEPS + i) = wave(at) + 0.5_real64*wave(3*at) + 0.25_real64*wave(5*at + 0.3_real64)
        end do
    end subroutine

    ! Reads or writes this rank's part of the fine grid.
    subroutine file(writes)
        logical, intent(in) :: writes
        character(len=64) :: path
        integer :: unit
        write (path, '(a,i0,a)') 'field.', rank, '.bin'
        open (newunit=unit, file=path, form='unformatted', access='stream', status=merge('replace', 'old    ', writes))
        if (writes) then
            write (unit) fine(SUBSTEPS + 1:SUBSTEPS + RATIO*cells)
        else
            read (unit) fine(SUBSTEPS + 1:SUBSTEPS + RATIO*cells)
        end if
        close (unit)
    end subroutine

    ! One time step: the fine grid goes on, and the network learns from it on the ranks that learn.
    subroutine time_step(step, learns, number)
        type(lk_step), intent(inout) :: step
        logical, intent(in) :: learns
        integer, intent(in) :: number
        integer :: i
        call restrict_to(plain)
        call gather(plain)
        call advance_coarse(plain)
        call advance_fine()
        do i = 1, cells
            y(1, i) = (mean_below(i) - plain(2 + i))/DT
        end do
        if (.not. learns) return
        do i = 1, REPEATS
            call step%train(lk_tensor(x), lk_tensor(y))
        end do
        if (rank == 0) write (*, '(i4,1x,es22.16e2)') number, step%loss()
    end subroutine

    ! All ranks get the weights of rank 0.
    subroutine share_weights(net)
        type(lk_model), intent(inout) :: net
        real(real64), target :: w1(WIDTH, HIDDEN), b1(HIDDEN), w2(HIDDEN, 1), b2(1)
        call net%get('0.weight', lk_tensor(w1))
        call net%get('0.bias', lk_tensor(b1))
        call net%get('2.weight', lk_tensor(w2))
        call net%get('2.bias', lk_tensor(b2))
        call MPI_Bcast(w1, size(w1), MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, ierr)
        call MPI_Bcast(b1, size(b1), MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, ierr)
        call MPI_Bcast(w2, size(w2), MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, ierr)
        call MPI_Bcast(b2, size(b2), MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, ierr)
        call net%set('0.weight', lk_tensor(w1))
        call net%set('0.bias', lk_tensor(b1))
        call net%set('2.weight', lk_tensor(w2))
        call net%set('2.bias', lk_tensor(b2))
    end subroutine

    real(real64) function distance(v)
        real(real64), intent(in) :: v(:)
        real(real64) :: total
        integer :: i
        total = 0
        do i = 1, cells
            total = total + abs(v(2 + i) - mean_below(i))
        end do
        call MPI_Allreduce(total, distance, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
        distance = distance/COARSE
    end function

    ! The coarse grid alone, without and with the network, beside the fine one.
    subroutine forecast(step)
        type(lk_step), intent(inout) :: step
        real(real64) :: off, off_closed
        integer :: i
        call restrict_to(plain)
        call restrict_to(closed)
        do i = 1, FORECAST_STEPS
            call gather(closed)
            call advance_coarse(closed)
            call step%predict(lk_tensor(x), lk_tensor(y))
            closed(3:cells + 2) = closed(3:cells + 2) + DT*y(1, :)
            call exchange(plain, cells, 2)
            call advance_coarse(plain)
            call advance_fine()
        end do
        off = distance(plain)
        off_closed = distance(closed)
        if (rank == 0) write (*, '(a,i0,a,es8.2e2,a,es8.2e2)') 'after ', FORECAST_STEPS, ' steps the coarse grid is off by ', &
            off, ', with the network by ', off_closed
    end subroutine
end module

program closure
    use solver
    implicit none
    type(lk_model) :: net
    type(lk_comm) :: comm
    type(lk_step) :: step, answer
    integer :: learners, i, first = 0, last = 300
    logical :: learns
    character(len=16) :: argument

    if (command_argument_count() == 2) then
        call get_command_argument(1, argument); read (argument, *) first
        call get_command_argument(2, argument); read (argument, *) last
    end if
    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
    if (modulo(COARSE/2, ranks) /= 0) error stop 'closure: expected a number of ranks that divides 32'
    cells = COARSE/ranks
    allocate (fine(RATIO*cells + 2*SUBSTEPS), plain(cells + 4), closed(cells + 4), x(WIDTH, cells), y(1, cells))

    learns = rank < (ranks + 1)/2
    call MPI_Comm_split(MPI_COMM_WORLD, merge(0, MPI_UNDEFINED, learns), rank, learners, ierr)
    call lk_manual_seed(7)
    call net%linear(WIDTH, HIDDEN); call net%tanh(); call net%linear(HIDDEN, 1)
    call net%to(LK_F64)
    if (learns) then
        call comm%from_mpi(learners)
        call step%create(net, loss='MSELoss', optimizer='Adam', lr=0.01_real64, comm=comm, uneven=.true., device='cpu')
    end if

    if (first > 0) then
        call file(writes=.false.)
        if (learns) call step%restore('closure.safetensors', collective=.true.)
    else
        call start()
    end if
    do i = first + 1, last
        call time_step(step, learns, i)
    end do
    call file(writes=.true.)
    if (learns) call step%save('closure.safetensors', collective=.true.)

    call share_weights(net)
    call answer%create(net, device='cpu')
    call forecast(answer)

    call answer%free()
    call step%free()
    call comm%free()
    call net%free()
    if (learns) call MPI_Comm_free(learners, ierr)
    call MPI_Finalize(ierr)
end program
