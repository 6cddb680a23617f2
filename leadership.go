package leaderelection

import "context"

// Leadership waits until this candidate leads, and returns the leadership's ctx and view:
// what OnElected is called with. At once, where it leads already. It may be called by any
// number of goroutines, each time anew after a leadership has ended:
//
//	for {
//		leading, view, err := campaign.Leadership(ctx)
//		if err != nil {
//			return err
//		}
//		work(leading, view)
//	}
//
// It returns context.Cause(ctx) when ctx has ended, and when the campaign has stopped what
// Wait returns. That the caller is done is known to nobody: when leadership is given up by
// choice, the record is released as soon as OnElected and OnOusting have returned, or at
// once where there are none. The view is over by then. To wind down with the lease kept,
// wait in OnOusting for what uses this ctx.
func (c *Campaign) Leadership(ctx context.Context) (context.Context, *TimeView, error) {
	for {
		t := c.tenure.Load()
		switch {
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case t.ctx != nil && t.ctx.Err() == nil && t.view.ValueInFuture():
			return t.ctx, t.view, nil
		}
		select {
		case <-t.next:
		case <-c.done:
			return nil, nil, c.err
		case <-ctx.Done():
		}
	}
}
